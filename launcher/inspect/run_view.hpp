// RunView: a job at a moment, as `ddp-launch inspect` shows it: a row for each rank of this host,
// or of all, and who holds up the others. Made by the agent, which alone sees pages and processes;
// read by anybody, as JSON (docs/inspect.md).
#pragma once

#include "launcher/process/exit_status.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/rank_row.hpp"
#include "launcher/verdict/rank_observer.hpp"

#include <fcntl.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RunView {
    int attempt = 1;  // of `attempts`
    int attempts = 1;
    int world_size = 0;
    std::vector<RankRow> ranks = {};  // of this host, and of others that have been asked
    bool has_asked_hosts = false;     // all others were: what is missing has not been told
    bool is_judged = true;  // of a job of several hosts, one other judges: nothing is known here
    std::optional<HangFacts> hang = {};
    std::optional<SlowFacts> slow = {};
};

// What does not change while a job runs.
struct RunFacts {
    std::string run_id = {};
    std::vector<std::string> command = {};
    pid_t launcher_pid = 0;     // the front's
    bool is_kept = true;        // its last view, after its end
    bool is_judged = true;      // who holds it up
    bool is_contained = false;  // pids are those of a PID namespace of its own
    std::chrono::system_clock::time_point started = std::chrono::system_clock::now();
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
};

struct RunEnd {
    std::optional<int> exit_code = 0;  // nothing: there was nobody to be told
    std::string report = {};           // as on stderr; may be empty
};

std::vector<RankRow> rows_of(const WatchedWorkers& workers, RankRow::Time now);
// How much of the time since the first recorded call the rank has spent in calls; nothing: none is
// recorded.
std::optional<double> share_in_calls(const contract::RankRecord& record, RankRow::Time now);

// What a memfd with that JSON has, at least (fcntl(2), F_ADD_SEALS).
inline constexpr int run_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
// `end`: nothing: it runs.
std::string to_json(const RunFacts& facts, const RunView& view, const std::optional<RunEnd>& end);

}  // namespace ddp::launcher
