// ProcessGroup::allocate and adopt on shm: rank 0 makes the memory, the others open it; of an
// adopt, each moves its own memory's pages there. Invariant: all ranks have it, or all of them
// throw.
#pragma once

#include <memory>

namespace ddp::shm {

struct CollectiveContext;

// As Backend::provide_memory.
std::shared_ptr<void> provide_memory(CollectiveContext& context);

}  // namespace ddp::shm
