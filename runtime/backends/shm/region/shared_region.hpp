// The memory that the ranks of one group share: their processes, their phases, the descriptors of
// their calls, and the slots through which data moves (region_layout.hpp). Invariant: sizes and
// offsets are read from the header once, when the region is opened, and checked.
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
    // The region of a group of so many ranks. Throws as SharedMemory::open, and UsageError where
    // the header cannot be that of such a region.
    static std::shared_ptr<SharedRegion> open(const std::string& address, int ranks,
                                              const base::Deadline& deadline,
                                              const HostKernel& kernel = HostKernel::real());
    std::string address() const { return memory_->address(); }
    void close_descriptor() { memory_->close_descriptor(); }

    int ranks() const { return static_cast<int>(layout_.ranks); }
    const Tuning& tuning() const { return tuning_; }  // as read when the region was opened
    std::atomic<std::uint32_t>& abort_word() const;
    RankBlock& block(int rank) const { return blocks_[rank]; }
    // Publishes the rank's process and the backend that it asks for. Before any rank makes a
    // backend of the region.
    void introduce(int rank, std::uint32_t requested_backend = 0) const;
    // Whether that rank is in this process: it was introduced through this object.
    bool is_in_this_process(int rank) const;
    // Whether that rank has introduced itself, now or within `at_most`.
    bool is_introduced(int rank, std::chrono::nanoseconds at_most) const;
    // A rank's 2 * ranks() counts of an uneven all_to_all: sent, then received.
    std::uint64_t* parts(int rank, std::uint64_t parity) const;
    Channel& channel(int from, int to) const;
    // A slot has room for one chunk, or several of which one is there.
    std::byte* channel_slot(int from, int to, std::uint64_t chunk) const;
    std::size_t channel_slot_bytes() const { return layout_.channel_slot_bytes; }  // of a chunk
    std::size_t channel_slot_room() const { return layout_.channel_slot_room; }
    // Before this rank writes into its slots or the results, or sends through a channel. Reserves
    // their memory, which many jobs never need. Reading needs no reservation. Throws SystemError.
    void reserve_slots(int rank) const;
    void reserve_channels(int from) const;
    // Where that rank stages the chunk, and where its results are.
    std::byte* slot(int rank, std::uint64_t chunk) const {
        const SlotPosition position =
            position_of_slot(static_cast<std::size_t>(rank), chunk, swaps_slots_);
        return slot_at(position.owner, position.slot);
    }
    std::byte* result(std::uint64_t chunk) const;
    // Two ranks write in turns: each into the slot that it has read two chunks before.
    bool swaps_slots() const { return swaps_slots_; }
    std::size_t slot_bytes() const { return layout_.slot_bytes; }

private:
    std::byte* slot_at(std::size_t owner, std::size_t position) const {
        return slots_ + (owner * slots_per_rank + position) * layout_.slot_bytes;
    }
    // Sizes and offsets of the region's parts.
    struct Layout {
        Layout(std::size_t ranks, std::size_t slot_bytes);
        std::size_t ranks, slot_bytes, channel_slot_bytes, channel_slot_room, parts_bytes;
        std::size_t blocks, parts, channels, channel_slots, slots, end;
    };
    SharedRegion(std::shared_ptr<SharedMemory> memory, const Layout& layout, const Tuning& tuning);
    RegionHeader& header() const;

    std::shared_ptr<SharedMemory> memory_;
    Layout layout_;
    Tuning tuning_;
    bool swaps_slots_;
    std::byte* slots_;
    RankBlock* blocks_;
    std::unique_ptr<std::atomic<bool>[]> own_;  // by rank
    std::uint64_t token_;  // of this process: peers that can read it by address find this
};

}  // namespace ddp::shm
