// Each rank's input becomes a part of the root's output, or of every rank's. Invariant: a rank's
// slot holds a chunk of its own part, which all receivers copy.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void gather(CollectiveContext& context);
void all_gather(CollectiveContext& context);  // the parts may be uneven

}  // namespace ddp::shm
