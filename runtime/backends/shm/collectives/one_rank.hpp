// Collectives of a group of one rank: its input becomes its output, by a copy or by the reduction
// of one input. Invariant: no shared memory is touched.
#pragma once

#include "backends/backend.hpp"

namespace ddp::shm {

// Throws UsageError where an all_to_all sends this rank another count than it expects.
void run_on_one_rank(const backends::Call& call);

}  // namespace ddp::shm
