// Copies without slots, between the two phases of a call that takes the direct path: ranks read and
// write their peers' buffers, mapped or by address. Invariant: only buffers are accessed that their
// rank has registered in the descriptor of this call.
#pragma once

#include "backends/shm/call/collective_context.hpp"
#include "backends/shm/region/shared_allocations.hpp"

#include <cstddef>
#include <span>

namespace ddp::shm {

// Bytes of the sender's input, from `input_offset` on, that go to `output_offset` of the
// receiver's output.
struct PeerCopy {
    std::size_t sender, receiver, bytes, input_offset, output_offset;
};
// This rank's share of the copy: the sender pushes the first `pushed` bytes, the receiver pulls the
// others. The receiver pulls all where it has registered no output.
void copy_between(const CollectiveContext& context, const PeerCopy& copy, std::size_t pushed);

// Into a peer's output, at `offset`.
void write_to_output(const CollectiveContext& context, std::size_t peer, std::size_t offset,
                     std::span<const std::byte> from);
// Points the scratch's inputs at that extent of each rank's input; all inputs are mapped.
void find_inputs(const CollectiveContext& context, const SharedAllocations::Extent& extent);

// After this rank's last access to peers' buffers, before it arrives at the next phase: a rank that
// leaves the call early, and uses its buffers for something else, has aborted the group first.
void require_not_aborted(const CollectiveContext& context);

}  // namespace ddp::shm
