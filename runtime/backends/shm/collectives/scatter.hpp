// Each rank's output is a part of the root's input. The root's slot holds one piece for each other
// rank.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void scatter(CollectiveContext& context);

}  // namespace ddp::shm
