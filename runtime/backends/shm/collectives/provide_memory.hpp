// ProcessGroup::allocate on shm: rank 0 makes the memory, the others open it. Invariant: all ranks
// have it, or all of them throw.
#pragma once

#include <memory>

namespace ddp::shm {

struct CollectiveContext;

// `context.call.elements`: bytes of each rank's piece. Returns this rank's. Throws SystemError on
// every rank where one has no memory; the group stays usable then.
std::shared_ptr<void> allocate(CollectiveContext& context);

}  // namespace ddp::shm
