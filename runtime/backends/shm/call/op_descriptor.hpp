// How ranks tell each other what they call. Each rank publishes a descriptor of its call with the
// call's first phase, and compares all descriptors after it. Invariant: no rank reads a byte of a
// peer's data before the descriptors of all ranks were found equal.
#pragma once

#include "backends/shm/call/collective_context.hpp"

#include <cstddef>

namespace ddp::shm {

// Fills in this rank's descriptor, which begin() publishes.
void fill_descriptor(CollectiveContext& context, BufferRegistration buffers);
// Arrives at the first phase of the call, waits for it, and compares the descriptors. Throws
// UsageError on every rank where they differ; as ShmBarrier::wait.
void begin(CollectiveContext& context);
// After the call's first phase.
void compare_calls(const CollectiveContext& context);

// That rank's descriptor, which lasts until this rank arrives at the next phase but one.
inline const OpDescriptor& descriptor_of(const CollectiveContext& context, std::size_t rank) {
    return context.group.barrier.descriptor(static_cast<int>(rank), context.first_phase);
}

}  // namespace ddp::shm
