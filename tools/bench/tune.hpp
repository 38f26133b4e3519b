// ddp-bench --tune: measures which switch points of shm collectives are best on this host for so
// many ranks, and writes them as a row of the file that DDP_SHM_TUNING=@FILE names.
//
// One setting after the other, in two passes: each of its values, by turns with what has been
// chosen so far, in a group of its own each time, on the calls that the setting is about. A value
// is taken when it saves 3 % of them and costs none more than 10 %, twice. At the end all calls are
// measured against the built-in table; what saves less than 1 % there is not written.
#pragma once

#include "bench/bench_options.hpp"

#include <ddp/process_group.hpp>

namespace ddp::bench {

// Throws UsageError on every rank where nothing can be tuned: another backend than shm, one rank,
// or DDP_SHM_TUNING set. Before the group is made, for the variable.
void check_tunable();

// Collective, blocks for minutes; `group` is of backend shm. Rank 0 prints and writes. Throws
// SystemError, on rank 0 before anything is measured, when the file cannot be written.
void tune(ProcessGroup& group, const Options& options);

}  // namespace ddp::bench
