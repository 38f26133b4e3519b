// What the ranks of one group share: who they are, how far each is, what it calls, and the slots
// through which data moves.
#pragma once

#include "backends/shm/region/region_layout.hpp"
#include "backends/shm/region/shared_memory.hpp"
#include "backends/shm/tuning.hpp"
#include "base/deadline.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddp::shm {

class SharedRegion {
public:
    // Throws SystemError that names the bytes when there is no memory for what every group needs.
    static std::shared_ptr<SharedRegion> create(int ranks, const Tuning& tuning);
    // That of a group of so many ranks: as SharedMemory's. UsageError also when what the header
    // says is not what such a region's can.
    static std::shared_ptr<SharedRegion> open(const std::string& address, int ranks,
                                              const base::Deadline& deadline,
                                              const HostKernel& kernel = HostKernel::real());
    std::string address() const { return memory_->address(); }
    void close_descriptor() { memory_->close_descriptor(); }

    int ranks() const { return static_cast<int>(layout_.ranks); }
    const Tuning& tuning() const { return tuning_; }  // as it was when the region was opened
    std::atomic<std::uint32_t>& abort_word() const;
    RankBlock& block(int rank) const { return blocks_[rank]; }
    // Writes down who this rank is, and what it wants: before any rank makes a backend of the
    // region.
    void introduce(int rank, std::uint32_t wanted = 0) const;
    // Whether that rank is one of this process: introduced through this very object.
    bool is_own(int rank) const;
    // Whether it has, now or within `at_most`.
    bool has_come(int rank, std::chrono::nanoseconds at_most) const;
    // 2 * ranks() counts of an uneven all_to_all: sent, then received.
    std::uint64_t* parts(int rank, std::uint64_t parity) const;
    Channel& channel(int from, int to) const;
    std::byte* channel_slot(int from, int to, std::uint64_t chunk) const;
    std::size_t channel_slot_bytes() const { return layout_.channel_slot_bytes; }
    // Before this rank writes into its slots or the results, or sends through a channel: their
    // memory is taken then, since many jobs never move what needs them. Who only reads what another
    // wrote need not. Throws SystemError.
    void reserve_slots(int rank) const;
    void reserve_channels(int from) const;
    std::byte* slot(int rank, std::uint64_t chunk) const;
    std::byte* result(std::uint64_t chunk) const;
    std::size_t slot_bytes() const { return layout_.slot_bytes; }

private:
    // Offsets of the region's parts.
    struct Layout {
        Layout(std::size_t ranks, std::size_t slot_bytes);
        std::size_t ranks, slot_bytes, channel_slot_bytes, parts_bytes;
        std::size_t blocks, parts, channels, channel_slots, slots, end;
    };
    SharedRegion(std::shared_ptr<SharedMemory> memory, const Layout& layout, const Tuning& tuning);
    RegionHeader& header() const;

    std::shared_ptr<SharedMemory> memory_;
    Layout layout_;
    Tuning tuning_;
    RankBlock* blocks_;
    std::unique_ptr<std::atomic<bool>[]> own_;  // by rank
    std::uint64_t token_;                       // of this process, for its peers to find
};

}  // namespace ddp::shm
