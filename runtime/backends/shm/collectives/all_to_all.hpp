// Each rank sends one part of its input to each rank; the parts may be uneven. Each rank's slot
// holds one piece for each other rank.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void all_to_all(CollectiveContext& context);

}  // namespace ddp::shm
