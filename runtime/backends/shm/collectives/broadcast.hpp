// The root's input becomes every rank's output. One chunk a slot.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void broadcast(CollectiveContext& context);

}  // namespace ddp::shm
