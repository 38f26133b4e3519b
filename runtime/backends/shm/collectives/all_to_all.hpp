// Each rank sends one part of its input to each rank; the parts may be uneven. Invariant: each
// rank's slot holds one piece for each other rank, and only that rank reads it.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void all_to_all(CollectiveContext& context);

}  // namespace ddp::shm
