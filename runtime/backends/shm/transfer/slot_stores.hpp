// How what a rank stages goes into its slots: through its caches or past them.
//
// A line of a slot was last read by another core, and writing it takes it away from there. What
// that costs depends on where the two cores are: on AMD's Zen 4 28 GB/s between two threads of a
// core, 7 between cores that share a cache, 2 where they share none. Past the caches it is 28
// always, but then the reader waits for memory. Virtual machines move from one place to another
// while they run, so both ways are timed, and each size of call takes the one that suits it now.
#pragma once

#include "backends/reduction/reduce.hpp"
#include "backends/shm/tuning.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ddp::shm {

class SlotStores {
public:
    explicit SlotStores(const Tuning& tuning) : tuning_(tuning) {}

    // How a call of so many bytes best writes a part of `bytes` for others.
    backends::Store store_of(std::size_t call_bytes, std::size_t bytes) const;

    // Copies a part of such a call, `also` to there unless that is null; now and then in the other
    // way, to see.
    void put(std::size_t call_bytes, std::byte* slot, const std::byte* from, std::size_t bytes,
             std::byte* also = nullptr);

    // What put() does, for tests: how the next part goes, and what it cost its writer.
    backends::Store next_store(std::size_t call_bytes, std::size_t bytes);
    void note(std::size_t call_bytes, backends::Store store, std::size_t bytes, double ps);

private:
    static constexpr std::size_t ways = 2;
    struct Habit {
        std::uint32_t parts = 0;
        std::array<double, ways> ps_a_byte{};  // of each Store; 0: not known
    };
    bool compares(std::size_t call_bytes) const {
        return tuning_.streaming_gain_ps > 0 && call_bytes < tuning_.streaming_bytes;
    }

    Tuning tuning_;
    std::array<Habit, 65> habits_{};  // by the number of bits of the call's size
};

}  // namespace ddp::shm
