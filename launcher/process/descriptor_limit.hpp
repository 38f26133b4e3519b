// The agent holds several descriptors for each worker, and the usual soft limit was made for
// programs that hold few. It raises its own limit as far as it may; workers get the user's back.
#pragma once

#include <sys/resource.h>

namespace ddp::launcher {

// Raises this process's soft limit to the hard one; returns what was set before.
rlimit raise_descriptor_limit();

// Throws UsageError, before anything is started, when the limit is too low for so many workers:
// each takes two pipes, a pidfd and, as a rule, two connections to the store.
void require_descriptors_for(int workers);

}  // namespace ddp::launcher
