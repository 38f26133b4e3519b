// Copies what a rank stages into its slots, through its caches or past them (non-temporal stores).
//
// A line of a slot was last read by another core, and writing it invalidates it there. The cost
// depends on where the two cores are: on AMD's Zen 4 a writer gets 28 GB/s where they are two
// threads of a core, 7 where they share a cache, 2 where they share none. Past the caches it gets
// 23 to 29, but then the reader waits for memory. A virtual machine's cores move while it runs, so
// both modes are timed, and each size of call uses the one that is best now. Invariant: the bytes
// written are the same in both modes, so ranks need not agree on one.
#pragma once

#include "backends/reduction/reduce.hpp"
#include "backends/shm/tuning.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddp::shm {

// How so many bytes are copied through the caches.
inline backends::Store store_through_caches(const Tuning::Copying& copying, std::size_t bytes) {
    const bool as_string = copying.string_bytes > 0 && bytes >= copying.string_bytes;
    return as_string ? backends::Store::string : backends::Store::cached;
}

// From a slot to an output, through the caches. The two are the same memory or do not overlap.
inline void copy_from_slot(const Tuning::Copying& copying, std::byte* to, const std::byte* from,
                           std::size_t bytes) {
    const backends::Store store = store_through_caches(copying, bytes);
    const bool plain = copying.claims_outputs == 0 && to != from && bytes > 0;
    if (plain && store == backends::Store::cached) {
        std::memcpy(to, from, bytes);
    } else {
        backends::copy(to, from, bytes, store);
    }
}

class SlotWriter {
public:
    explicit SlotWriter(const Tuning& tuning)
        : min_gain_ps_(tuning.streaming.min_gain_ps), copying_(tuning.copying) {}

    // The better mode for a part of `bytes` in a call of `call_bytes`.
    backends::Store best_store(std::size_t call_bytes, std::size_t bytes) const;

    // Copies a part of such a call to the slot, and to `also` unless that is null. Now and then in
    // the other mode, to time it.
    void write(std::size_t call_bytes, std::byte* slot, const std::byte* from, std::size_t bytes,
               std::byte* also = nullptr);

    // The steps of write(), for tests: the mode of the next part, and what the part cost.
    backends::Store next_store(std::size_t call_bytes, std::size_t bytes);
    void record(std::size_t call_bytes, backends::Store store, std::size_t bytes, double ps);

private:
    static constexpr std::size_t modes = 2;
    struct CopyModeStats {
        std::uint32_t parts = 0;
        std::array<double, modes> ps_per_byte{};  // by mode; 0: not timed yet
    };
    bool compares() const { return min_gain_ps_ > 0; }

    std::uint64_t min_gain_ps_;
    Tuning::Copying copying_;
    std::array<CopyModeStats, 65> stats_{};  // by std::bit_width of the call's size
};

}  // namespace ddp::shm
