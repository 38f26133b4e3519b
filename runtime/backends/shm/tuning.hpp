// The numbers that choose the path of an shm collective: a small table by processor, ranks and
// cores, which DDP_SHM_TUNING overrides ("chunk_bytes=64K,streaming_bytes=4M"). They change the way
// of the data, never the order of a sum. The maker of a region writes them there, so all its ranks
// agree.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp::shm {

struct Tuning {
    // Up to here each rank publishes everything and reduces everything, in one phase.
    std::uint64_t one_phase_bytes;
    // What moves at a time through the slots, at most; also the size of a slot.
    std::uint64_t chunk_bytes;
    // That of an all_reduce of more than two slots, at most: what it stages, reduces and copies by
    // turns shall stay in the caches.
    std::uint64_t pipelined_bytes;
    // From here on the bytes staged for others go past the caches.
    std::uint64_t streaming_bytes;
    // Below, they do where that spares their writer more than so many picoseconds a byte, which is
    // what their reader loses (slot_writer.hpp); 0: never.
    std::uint64_t streaming_gain_ps;
    // From here on so does what comes into an output, unless it is the input too; 0: none.
    std::uint64_t streaming_output_bytes;
    // From here on calls that leave room in their slots use another part of them each time, so that
    // the lines they write have left the caches of who has read them; 0: none do.
    std::uint64_t rotating_bytes;
    // Of so much of a rank's slots, at most: what a core's ranks write meanwhile leaves its own
    // caches, and more would only crowd those that cores share.
    std::uint64_t rotating_room;
    // Not 0: copies into outputs ask for the lines a little ahead, as those into slots do.
    std::uint64_t claims_outputs;
    // Where one rank wants so many bytes of another, peers reach ordinary memory by its address,
    // with no slot between.
    std::uint64_t direct_bytes_min;
    std::uint64_t direct_bytes_max;  // 0: never
    // No more than that in the collectives that only move, and in all_reduce; sends go up to `max`.
    std::uint64_t direct_exchange_bytes_max;
    std::uint64_t direct_reduction_bytes_max;
    // Polls with a pause before a waiting rank begins to yield its core.
    std::uint64_t spins;
    friend bool operator==(const Tuning&, const Tuning&) = default;
};

// The first number, if any, that no make_tuning() gives a group of so many ranks: sizes of slots
// and what fits in them, and how long a rank polls. Null: none. What a region says is asked so.
const char* find_impossible(const Tuning& tuning, int ranks);

// For so many ranks on so many cores, at least one each, with `overrides` (the variable's value,
// may be empty) applied. Throws UsageError for an unknown name or a bad number.
Tuning make_tuning(int ranks, int cores, std::string_view overrides);

}  // namespace ddp::shm
