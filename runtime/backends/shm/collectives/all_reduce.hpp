// Every rank's output becomes the reduction of all ranks' inputs. Three paths: small data in one
// phase, each rank reducing all of it; in place between two phases (direct); through slots in
// chunks, each rank reducing its share (staged). Invariant: one rank reduces an element from the
// inputs of all ranks at once, so the bits do not depend on the path.
#pragma once

namespace ddp::shm {

struct CollectiveContext;

void all_reduce(CollectiveContext& context);

}  // namespace ddp::shm
