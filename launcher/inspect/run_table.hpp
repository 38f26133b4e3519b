// The words of `ddp-launch inspect`: a job's JSON (run_view.hpp) as a head, a table of its ranks,
// and what is wrong with it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace ddp::launcher {

// Of two views of one job, `later` gets in cpu_share what was used between them.
void settle_cpu_shares(const nlohmann::json& earlier, nlohmann::json& later);

// Ends with a newline. Control characters of others are '?'. Throws json::exception for what
// to_json(RunFacts...) does not make.
std::string run_table(const nlohmann::json& run);

}  // namespace ddp::launcher
