#include "backends/shm/collectives/all_reduce.hpp"

#include "backends/shm/call/buffer_registration.hpp"
#include "backends/shm/call/collective_context.hpp"
#include "backends/shm/call/op_descriptor.hpp"
#include "backends/shm/collectives/direct_copy.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>

namespace ddp::shm {
namespace {

struct ElementRange {
    std::size_t begin, end;
    std::size_t count() const { return end - begin; }
};

// That rank's share of so many elements. Shares begin on cache lines, so that two ranks never write
// the same one.
ElementRange share_of(const CollectiveContext& context, std::size_t elements, std::size_t rank) {
    const std::size_t ranks = context.group.ranks;
    const std::size_t per_line = cache_line / context.element_bytes;
    const std::size_t lines = (elements + per_line - 1) / per_line;
    return {std::min(lines * rank / ranks * per_line, elements),
            std::min(lines * (rank + 1) / ranks * per_line, elements)};
}

// One phase.

void all_reduce_in_one_phase(CollectiveContext& context) {
    GroupState& group = context.group;
    const std::size_t bytes = context.call.bytes();
    const bool in_line = bytes <= inline_bytes;
    if (!in_line) {
        context.color_slots(bytes, group.tuning.staged.chunk_bytes);
        context.copy_to_slot(context.slot(group.rank, 0), context.input(), bytes);
    }
    fill_descriptor(context, {});
    if (in_line && bytes > 0) {
        std::memcpy(group.barrier.next_descriptor().line.data, context.input(), bytes);
    }
    begin(context);
    std::vector<const std::byte*>& inputs = group.scratch.inputs;
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        inputs[peer] = in_line ? descriptor_of(context, peer).line.data : context.slot(peer, 0);
    }
    // Not from where the peers read it at the same time.
    if (bytes > 0) inputs[group.rank] = context.input();
    std::byte* const output = context.output();
    backends::reduce(inputs, {&output, 1}, context.call.elements, context.reduction());
    if (!in_line) ++group.next_chunk;
}

// Direct.

// Bytes of this rank's slots for what it reads of each peer by address: no rank reads these slots
// during the call.
std::size_t scratch_bytes(const GroupState& group) {
    return slots_per_rank * group.tuning.staged.chunk_bytes / group.ranks / cache_line * cache_line;
}

// Where that block of a peer's input is, after reading it by address where it is not mapped.
const std::byte* input_of_peer(const CollectiveContext& context, std::size_t peer,
                               const SharedAllocations::Extent& block) {
    GroupState& group = context.group;
    const int rank = static_cast<int>(peer);
    const BufferLocation input = descriptor_of(context, peer).details.input;
    if (input.allocation != 0) return group.allocations.address(rank, input, block);
    // The block was cut for that, unless the descriptor has changed since.
    const std::size_t room = scratch_bytes(group);
    if (block.bytes > room) throw Error("shm: " + group.waiter.name(rank) + " changed its call");
    std::byte* const read = group.region->slot(static_cast<int>(group.rank), 0) + peer * room;
    group.peers.read(rank, input.offset + block.first, read, block.bytes, context);
    return read;
}

void reduce_block(const CollectiveContext& context, ElementRange range) {
    GroupState& group = context.group;
    const SharedAllocations::Extent block{range.begin * context.element_bytes,
                                          range.count() * context.element_bytes};
    std::vector<std::byte*>& outputs = group.scratch.outputs;
    std::size_t mapped = 0;
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        if (peer == group.rank) {
            group.scratch.inputs[peer] = context.input() + block.first;
            outputs[mapped++] = context.output() + block.first;
            continue;
        }
        const BufferLocation output = descriptor_of(context, peer).details.output;
        group.scratch.inputs[peer] = input_of_peer(context, peer, block);
        if (output.allocation == 0) continue;
        outputs[mapped++] = group.allocations.address(static_cast<int>(peer), output, block);
    }
    backends::reduce(group.scratch.inputs, std::span(outputs).first(mapped), range.count(),
                     context.reduction());
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        const BufferLocation output = descriptor_of(context, peer).details.output;
        if (peer == group.rank || output.allocation != 0) continue;
        write_to_output(context, peer, block.first, {context.output() + block.first, block.bytes});
    }
}

// Each rank reduces its share and writes it to all ranks; by address in blocks, which the scratch
// can hold.
void all_reduce_direct(CollectiveContext& context) {
    GroupState& group = context.group;
    const ElementRange own = share_of(context, context.call.elements, group.rank);
    std::size_t block = own.count();
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        const bool is_mapped = descriptor_of(context, peer).details.input.allocation != 0;
        if (is_mapped || peer == group.rank) continue;
        block = std::min(block, scratch_bytes(group) / context.element_bytes);
    }
    for (std::size_t first = own.begin; first < own.end; first += block) {
        reduce_block(context, {first, std::min(first + block, own.end)});
    }
    require_not_aborted(context);
    group.barrier.arrive_and_wait(context.deadline, context);
}

// Staged.

// One chunk of the call, and this rank's share of it.
struct Chunk {
    std::size_t index, first, count;  // in elements
    ElementRange own;
};
Chunk chunk_of(const CollectiveContext& context, std::size_t index) {
    const std::size_t most = context.slots.chunk_bytes / context.element_bytes;
    const std::size_t first = index * most;
    const std::size_t count = std::min(most, context.call.elements - first);
    return {index, first, count, share_of(context, count, context.group.rank)};
}

// Where the owner of a share finds it in another rank's slot. Of two ranks each stages one share,
// at the beginning, so that both use the same lines of a slot.
std::size_t offset_in_slot(const CollectiveContext& context, const ElementRange& share) {
    return context.group.ranks == 2 ? 0 : share.begin * context.element_bytes;
}

// What the other ranks reduce of this rank's input. Its own share stays where it is.
void stage_shares(const CollectiveContext& context, std::size_t index) {
    const std::size_t size = context.element_bytes;
    const Chunk chunk = chunk_of(context, index);
    const std::byte* const from = context.input() + chunk.first * size;
    std::byte* const to = context.slot(context.group.rank, index);
    context.copy_to_slot(to, from, chunk.own.begin * size);
    context.copy_to_slot(to + offset_in_slot(context, {chunk.own.end, chunk.count}),
                         from + chunk.own.end * size, (chunk.count - chunk.own.end) * size);
}

// Where a share lies in the result slot. Those of two ranks change places, so that each writes the
// lines that it has read.
std::size_t offset_in_result(const CollectiveContext& context, const Chunk& chunk,
                             const ElementRange& share) {
    if (!context.swaps_results(chunk.index)) return share.begin * context.element_bytes;
    if (share.begin > 0) return 0;
    const std::size_t other = (chunk.count - share.end) * context.element_bytes;
    return (other + cache_line - 1) / cache_line * cache_line;
}

// Into this rank's output, and into the result slot for the others.
void reduce_share(const CollectiveContext& context, std::size_t index) {
    GroupState& group = context.group;
    const std::size_t size = context.element_bytes;
    const Chunk chunk = chunk_of(context, index);
    const std::size_t in_buffer = (chunk.first + chunk.own.begin) * size;
    const std::size_t in_slot = offset_in_slot(context, chunk.own);
    std::vector<const std::byte*>& inputs = group.scratch.inputs;
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        inputs[peer] = context.slot(peer, index) + in_slot;
    }
    inputs[group.rank] = context.input() + in_buffer;
    std::byte* const result = context.result(index) + offset_in_result(context, chunk, chunk.own);
    std::byte* const outputs[] = {context.output() + in_buffer, result};
    const backends::Store store =
        group.slot_writer.best_store(context.copy_size, chunk.own.count() * size);
    backends::reduce(inputs, outputs, chunk.own.count(), context.reduction(), store);
}

// What the other ranks have reduced.
void copy_shares(const CollectiveContext& context, std::size_t index) {
    const std::size_t size = context.element_bytes;
    const Chunk chunk = chunk_of(context, index);
    std::byte* const to = context.output() + chunk.first * size;
    const std::byte* const from = context.result(index);
    const ElementRange before{0, chunk.own.begin};
    const ElementRange after{chunk.own.end, chunk.count};
    context.copy_to_output(to, from + offset_in_result(context, chunk, before),
                           before.count() * size);
    context.copy_to_output(to + after.begin * size, from + offset_in_result(context, chunk, after),
                           after.count() * size);
}

// Chunk 0 has been staged and its phase waited for. The phase that tells that a chunk is reduced
// also tells that the next one is staged. The next call begins at an even chunk number, so that its
// two chunks may go as one. A call that uses few positions does not advance the number.
void all_reduce_staged(CollectiveContext& context) {
    GroupState& group = context.group;
    const SlotUse& slots = context.slots;
    const std::size_t chunk_elements = slots.chunk_bytes / context.element_bytes;
    const std::size_t chunks = (context.call.elements + chunk_elements - 1) / chunk_elements;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        reduce_share(context, chunk);
        if (chunk + 1 < chunks) stage_shares(context, chunk + 1);
        group.barrier.arrive_and_wait(context.deadline, context);
        copy_shares(context, chunk);
    }
    const bool uses_all_slots = slots.positions == slots_per_rank / slots.slots_per_chunk;
    if (uses_all_slots) group.next_chunk += slots.slots_per_chunk * chunks;
    group.next_chunk += group.next_chunk % 2;
}

void choose_slots(CollectiveContext& context) {
    const GroupState& group = context.group;
    const std::size_t bytes = context.call.bytes();
    const std::size_t slot_bytes = group.tuning.staged.chunk_bytes;
    // The slots of an even chunk and of the next one are neighbours.
    const bool as_one = bytes <= 2 * slot_bytes && group.next_chunk % 2 == 0;
    context.slots.slots_per_chunk = as_one ? 2 : 1;
    context.slots.chunk_bytes = as_one ? 2 * slot_bytes : group.tuning.staged.pipelined_bytes;
    context.choose_positions(bytes);
    context.color_slots(bytes, slot_bytes);
}

}  // namespace

void all_reduce(CollectiveContext& context) {
    GroupState& group = context.group;
    const std::size_t bytes = context.call.bytes();
    if (bytes <= group.tuning.staged.one_phase_bytes) return all_reduce_in_one_phase(context);
    const std::size_t part = bytes / group.ranks;
    const bool by_address = part <= group.tuning.direct.max_reduction_bytes;
    BufferRegistration buffers =
        register_buffers(context, Role::both, {bytes, bytes, by_address ? part : 0});
    if (buffers.output == BufferAccess::none) buffers.input = BufferAccess::staged;
    choose_slots(context);
    context.choose_output_store(bytes, context.output() == context.input());
    if (buffers.input == BufferAccess::staged) stage_shares(context, 0);
    fill_descriptor(context, buffers);
    begin(context);
    switch (path_of(context)) {
        case DataPath::direct:
            return all_reduce_direct(context);
        case DataPath::staged_anew:
            if (buffers.input != BufferAccess::staged) stage_shares(context, 0);
            group.barrier.arrive_and_wait(context.deadline, context);
            break;
        case DataPath::staged:
            break;
    }
    all_reduce_staged(context);
}

}  // namespace ddp::shm
