// Each rank's output is a part of the root's input. Invariant: the root's slot holds one piece for
// each other rank, and only that rank reads it.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void scatter(CollectiveContext& context);

}  // namespace ddp::shm
