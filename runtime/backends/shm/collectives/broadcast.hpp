// The root's input becomes every rank's output. Invariant: only the root writes slots; it returns
// from a small call without waiting for its receivers.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void broadcast(CollectiveContext& context);

}  // namespace ddp::shm
