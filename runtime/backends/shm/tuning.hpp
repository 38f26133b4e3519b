// The switch points that choose how data of an shm collective move, from a table by processor,
// ranks and cores, which DDP_SHM_TUNING overrides ("chunk_bytes=64K,spins=0").
// Invariant: they change the path and the speed, never the order of a sum. The creator of a region
// writes them into it, so all its ranks have the same.
//
//     size on this rank, or of a part for one peer        path, as of the first row that fits
//     call    <= staged.one_phase_bytes                   one phase, never direct; in all_reduce
//                                                         each rank reduces everything
//     part of direct.min_bytes to direct.max_bytes,       by address, without slots
//       <= max_exchange_bytes, all_reduce:
//       max_reduction_bytes
//     all_reduce of more than two slots                   staged: chunks of staged.pipelined_bytes
//     other                                               staged: chunks of staged.chunk_bytes
//     and for what is staged, each that fits:
//     where it gains streaming.min_gain_ps                non-temporal stores into slots
//     output, or message received,
//             >= streaming.min_output_bytes               non-temporal stores into it
//     two ranks that both send                            the slot that this rank has read last
//     else call >= coloring.min_bytes, of one chunk       another part of its slot each time
//     message >= coloring.min_bytes                       likewise, of the channel's slot
//     copy    >= copying.string_bytes                     by the processor's string copy
//
// Memory of `allocate` is mapped by all ranks and takes the direct path at any size above one
// phase.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp::shm {

// Each number with its name in DDP_SHM_TUNING. Part of the region's layout: in this order, without
// gaps.
struct Tuning {
    struct Staged {
        std::uint64_t one_phase_bytes;  // one_phase_bytes
        std::uint64_t chunk_bytes;      // chunk_bytes; also the size of a slot
        // pipelined_bytes: so that the chunk that a rank stages, reduces and copies stays in its
        // caches.
        std::uint64_t pipelined_bytes;
        friend bool operator==(const Staged&, const Staged&) = default;
    };
    struct Streaming {
        // streaming_gain_ps: picoseconds a byte that the writer must gain, which is what the reader
        // loses (slot_writer.hpp). 0: never.
        std::uint64_t min_gain_ps;
        // streaming_output_bytes: unless the output is the input too. 0: never.
        std::uint64_t min_output_bytes;
        friend bool operator==(const Streaming&, const Streaming&) = default;
    };
    // Lines that a reader still has in its caches are slow to write. So a rank writes others, or
    // lines that it has read itself.
    struct Coloring {
        std::uint64_t min_bytes;  // rotating_bytes; 0: never
        // rotating_room: how much of a rank's four slots is cycled through. With more, the slots
        // would evict other data from the caches that cores share.
        std::uint64_t footprint_bytes;
        // swapped_slots; not 0: each of two ranks writes into the slot that it has read last.
        std::uint64_t swaps;
        friend bool operator==(const Coloring&, const Coloring&) = default;
    };
    // How data are copied into slots and out of them, unless past the caches.
    struct Copying {
        // claims_outputs; not 0: copies into outputs prefetch the lines that they write, as copies
        // into slots always do.
        std::uint64_t claims_outputs;
        // string_bytes: from that size on by the processor's string copy (`rep movsb`), which asks
        // for no line that it writes whole. 0: never.
        std::uint64_t string_bytes;
        friend bool operator==(const Copying&, const Copying&) = default;
    };
    // Of the part that one rank reads of another's memory, by its address.
    struct Direct {
        std::uint64_t min_bytes;            // direct_bytes_min
        std::uint64_t max_bytes;            // direct_bytes_max; 0: never, nor for sends
        std::uint64_t max_exchange_bytes;   // direct_exchange_bytes_max; not for sends
        std::uint64_t max_reduction_bytes;  // direct_reduction_bytes_max; in all_reduce
        friend bool operator==(const Direct&, const Direct&) = default;
    };
    struct Waiting {
        std::uint64_t spins;     // spins: polls with a pause before a rank begins to yield its core
        std::uint64_t yield_us;  // yield_us: for how long it does, before it sleeps
        friend bool operator==(const Waiting&, const Waiting&) = default;
    };

    Staged staged;
    Streaming streaming;
    Coloring coloring;
    Copying copying;
    Direct direct;
    Waiting waiting;
    friend bool operator==(const Tuning&, const Tuning&) = default;
};
static_assert(sizeof(Tuning) == 16 * sizeof(std::uint64_t));

// The name of the first number that no make_tuning() gives a group of so many ranks: sizes of slots
// and what fits in them, and how long a rank polls. Null: none. For numbers read from a region.
const char* find_impossible(const Tuning& tuning, int ranks);

// For so many ranks on so many cores, at least one each, with `overrides` (the variable's value,
// may be empty) applied. Throws UsageError for an unknown name or a bad number.
Tuning make_tuning(int ranks, int cores, std::string_view overrides);

// Overrides for ranks that wait for each other while some wait for another host: they leave the
// cores to the threads that move the bytes.
inline constexpr std::string_view among_hosts = "yield_us=50,";

}  // namespace ddp::shm
