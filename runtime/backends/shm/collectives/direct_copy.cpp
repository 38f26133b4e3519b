#include "backends/shm/collectives/direct_copy.hpp"

#include "backends/shm/call/op_descriptor.hpp"

#include <atomic>
#include <cstring>

namespace ddp::shm {
namespace {

// No other rank has just read these lines, as it has a slot's: so the plain copy is faster than one
// that prefetches for writing.
void copy(const CollectiveContext& context, std::byte* to, const std::byte* from,
          std::size_t bytes) {
    backends::Store store = context.output_store;
    if (store == backends::Store::cached) {
        store = store_through_caches(context.group.tuning.copying, bytes);
    }
    if (store == backends::Store::cached) {
        std::memmove(to, from, bytes);
    } else {
        backends::copy(to, from, bytes, store);
    }
}

void read_from_input(const CollectiveContext& context, std::size_t peer, std::size_t offset,
                     std::span<std::byte> to) {
    const int rank = static_cast<int>(peer);
    const BufferLocation input = descriptor_of(context, peer).details.input;
    if (input.allocation == 0) {
        context.group.peers.read(rank, input.offset + offset, to.data(), to.size(), context);
    } else {
        const std::byte* const from =
            context.group.allocations.address(rank, input, {offset, to.size()});
        copy(context, to.data(), from, to.size());
    }
}

}  // namespace

void write_to_output(const CollectiveContext& context, std::size_t peer, std::size_t offset,
                     std::span<const std::byte> from) {
    const int rank = static_cast<int>(peer);
    const BufferLocation output = descriptor_of(context, peer).details.output;
    if (output.allocation == 0) {
        context.group.peers.write(rank, output.offset + offset, from.data(), from.size(), context);
    } else {
        std::byte* const to =
            context.group.allocations.address(rank, output, {offset, from.size()});
        copy(context, to, from.data(), from.size());
    }
}

// Pointers are made where they are used: a rank without an input or an output has null there.
void copy_between(const CollectiveContext& context, const PeerCopy& part, std::size_t pushed) {
    if (part.bytes == 0) return;
    if (part.sender == part.receiver) {
        return copy(context, context.output() + part.output_offset,
                    context.input() + part.input_offset, part.bytes);
    }
    const BufferRegistration buffers = descriptor_of(context, part.receiver).line.signature.buffers;
    if (buffers.output == BufferAccess::none) pushed = 0;
    if (context.group.rank == part.sender) {
        if (pushed == 0) return;
        return write_to_output(context, part.receiver, part.output_offset,
                               {context.input() + part.input_offset, pushed});
    }
    if (pushed == part.bytes) return;
    read_from_input(context, part.sender, part.input_offset + pushed,
                    {context.output() + part.output_offset + pushed, part.bytes - pushed});
}

void find_inputs(const CollectiveContext& context, const SharedAllocations::Extent& extent) {
    GroupState& group = context.group;
    std::vector<const std::byte*>& inputs = group.scratch.inputs;
    inputs[group.rank] = context.input() + extent.first;
    for (std::size_t peer = 0; peer < group.ranks; ++peer) {
        if (peer == group.rank) continue;
        const BufferLocation input = descriptor_of(context, peer).details.input;
        inputs[peer] = group.allocations.address(static_cast<int>(peer), input, extent);
    }
}

void require_not_aborted(const CollectiveContext& context) {
    std::atomic_thread_fence(std::memory_order_acquire);
    const Waiter& waiter = context.group.waiter;
    if (waiter.is_aborted()) waiter.throw_abort(context());
}

}  // namespace ddp::shm
