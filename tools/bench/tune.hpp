// ddp-bench --tune: measures which switch points of shm collectives are best on this host for so
// many ranks, and writes them as a row of the file that DDP_SHM_TUNING=@FILE names.
//
// One setting after the other, in two passes: each of its values, by turns with what has been
// chosen so far, in a group of its own each time, on the calls that the setting is about. A value
// is taken when it saves 3 % of them and costs none more than 10 %, twice. At the end all calls are
// measured against the built-in table: what does not save 1 % there, or costs one of them more than
// 10 % twice, is dropped.
#pragma once

#include "bench/bench_options.hpp"

#include <ddp/process_group.hpp>

namespace ddp::bench {

// Throws UsageError when DDP_SHM_TUNING is set: to be called before there is a group.
void check_tunable();

// Collective, blocks for minutes; `group` is of backend shm. Rank 0 prints and writes. Throws
// UsageError for a group of one; on rank 0 also, before anything is measured, for a file with a
// wrong row or that is no regular one, and SystemError for one that cannot be read or written.
void tune(ProcessGroup& group, const Options& options);

}  // namespace ddp::bench
