// reduce and reduce_scatter: receivers reduce from the senders' slots. Invariant: the inputs of all
// ranks are reduced at once, in the order of the tree over ranks.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void reduce(CollectiveContext& context);
void reduce_scatter(CollectiveContext& context);

}  // namespace ddp::shm
