// Each rank's input becomes a part of the root's output, or of every rank's. A chunk of a rank's
// part is in its own slot.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void gather(CollectiveContext& context);
void all_gather(CollectiveContext& context);  // the parts may be uneven

}  // namespace ddp::shm
