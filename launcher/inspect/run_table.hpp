// The words of `ddp-launch inspect`: a job's JSON (run_view.hpp) as a head, a table of its ranks,
// and what is wrong with it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace ddp::launcher {

// Whether it is a job's, as to_json(RunFacts...) makes it.
bool is_run(const nlohmann::json& document);
// Of two views of one job, `later` gets in cpu_share what was used between them.
void settle_cpu_shares(const nlohmann::json& earlier, nlohmann::json& later);

// Of one that is_run(); throws json::exception for others. Ends with a newline. Whatever a terminal
// would obey is '?'.
std::string run_table(const nlohmann::json& run);

}  // namespace ddp::launcher
