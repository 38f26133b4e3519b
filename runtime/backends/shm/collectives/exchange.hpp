// What the collectives other than all_reduce have in common: one phase a chunk. Senders stage a
// chunk in their slots; receivers copy it, or reduce it, from there. Where no rank stages, ranks
// access each other's buffers between two phases (direct_copy.hpp). Invariant: a chunk is read only
// after its phase, and its slot written only after the phase of the chunk before (protocol.md).
#pragma once

#include "backends/shm/call/buffer_registration.hpp"
#include "backends/shm/call/collective_context.hpp"
#include "backends/shm/call/op_descriptor.hpp"
#include "backends/shm/call/part_table.hpp"
#include "backends/shm/collectives/direct_copy.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::shm {

inline std::size_t round_down(std::size_t value, std::size_t multiple) {
    return value / multiple * multiple;
}

inline std::size_t chunks_of(std::size_t bytes, std::size_t piece) {
    return (bytes + piece - 1) / piece;
}

// A slot may hold one piece for each rank but its own: which of them is for `receiver`.
inline std::size_t piece_index(std::size_t sender, std::size_t receiver) {
    return receiver < sender ? receiver : receiver - 1;
}
inline std::size_t piece_bytes(const GroupState& group) {
    return round_down(group.tuning.staged.chunk_bytes / (group.ranks - 1), cache_line);
}

// That slice of the part of the input that each other rank receives, into its piece of this rank's
// slot.
inline void stage_parts(const CollectiveContext& context, const ChunkSlice& slice,
                        std::size_t piece) {
    const GroupState& group = context.group;
    std::byte* const slot = context.slot(group.rank, slice.index);
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        if (peer == group.rank) continue;
        const std::byte* const part = context.input() + peer * context.call.bytes();
        context.copy_to_slot(slot + piece_index(group.rank, peer) * piece, part + slice.offset,
                             slice.bytes);
    }
}

// The parts of the call by rank. `counts`: which of the call's counts, where they are uneven.
inline PartTable parts_of(const CollectiveContext& context,
                          std::vector<std::size_t> backends::Parts::*counts) {
    const backends::Call& call = context.call;
    if (!call.parts) return PartTable::even(context.group.ranks, call.bytes());
    return PartTable::uneven((*call.parts).*counts, context.element_bytes);
}

// One collective's own part of it. `chunks()` is the same on all ranks, known once the calls are
// compared. `stage(i)` copies chunk i of what this rank sends into its slot, `receive(i)` gets what
// it wants of chunk i. `direct()` does all of it in peers' buffers.
template <class Steps>
concept ExchangeSteps = requires(Steps& steps, std::size_t chunk) {
    { steps.chunks() } -> std::same_as<std::size_t>;
    steps.stage(chunk);
    steps.receive(chunk);
    steps.direct();
};

// What the steps of a collective share in which whole inputs move to the root or from it.
struct RootedSteps {
    CollectiveContext& context;
    GroupState& group = context.group;
    std::size_t bytes = context.call.bytes();
    std::size_t piece = group.tuning.staged.chunk_bytes;
    bool is_root = group.rank == context.root();

    std::size_t chunks() const { return chunks_of(bytes, piece); }
    void stage_input(std::size_t chunk) const {
        const ChunkSlice slice = ChunkSlice::of(chunk, bytes, piece);
        context.copy_to_slot(context.slot(group.rank, chunk), context.input() + slice.offset,
                             slice.bytes);
    }
};

// Chunk 0 is staged, and all ranks have arrived.
template <ExchangeSteps Steps>
void exchange_staged(CollectiveContext& context, Steps& steps) {
    ShmBarrier& barrier = context.group.barrier;
    const std::size_t count = std::max<std::size_t>(steps.chunks(), 1);
    std::uint32_t staged = context.first_phase;
    for (std::size_t chunk = 0; chunk < count; ++chunk) {
        if (chunk > 0) barrier.wait(staged, context.deadline, context);
        if (chunk + 1 < count) {
            steps.stage(chunk + 1);
            staged = barrier.arrive();
        }
        steps.receive(chunk);
    }
    context.group.next_chunk += count;
}

template <ExchangeSteps Steps>
void exchange(CollectiveContext& context, Role role, BufferBytes bytes, Steps& steps) {
    GroupState& group = context.group;
    if (bytes.per_peer > group.tuning.direct.max_exchange_bytes) bytes.per_peer = 0;
    const BufferRegistration buffers = register_buffers(context, role, bytes);
    if (buffers.input == BufferAccess::staged) steps.stage(0);
    fill_descriptor(context, buffers);
    if (role == Role::sender && context.fits_one_phase && steps.chunks() <= 1) {
        defer_completion(context);
        steps.receive(0);  // what this rank sends to itself
        ++group.next_chunk;
        return;
    }
    begin(context);
    switch (path_of(context)) {
        case DataPath::direct:
            steps.direct();
            require_not_aborted(context);
            group.barrier.arrive_and_wait(context.deadline, context);
            return;
        case DataPath::staged_anew:
            if (role != Role::receiver && buffers.input != BufferAccess::staged) steps.stage(0);
            group.barrier.arrive_and_wait(context.deadline, context);
            break;
        case DataPath::staged:
            break;
    }
    exchange_staged(context, steps);
}

}  // namespace ddp::shm
