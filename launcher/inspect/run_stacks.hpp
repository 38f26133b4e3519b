// Where the ranks of a job that runs are in their programs, read now, by who asks: for
// `ddp-launch inspect --stacks`.
#pragma once

#include "launcher/stacks/rank_stacks.hpp"

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace ddp::launcher {

// Of the ranks in a document (RunView) that have not ended. `owner`: whose job it is. Each stands
// still for a moment. Blocks for some seconds at most, in a process without threads, whose standard
// input becomes /dev/null.
std::vector<RankStacks> read_stacks(const nlohmann::json& run, uid_t owner);

}  // namespace ddp::launcher
