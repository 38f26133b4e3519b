// RunView: a job at a moment, as `ddp-launch inspect` shows it: a row for each rank of this host,
// and who holds up the others. Made by the agent, which alone sees pages and processes; read by
// anybody, as JSON (docs/inspect.md).
#pragma once

#include "launcher/process/exit_status.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/verdict/rank_observer.hpp"

#include <fcntl.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RankRow {
    using Time = RankState::Time;

    int rank = 0;
    int local_rank = 0;
    pid_t pid = 0;
    // Of the process: "running", "stopped", "frozen", "held by a debugger", "in an uninterruptible
    // call", "ended".
    std::string state = {};
    std::optional<ExitStatus> ended = {};
    std::string phase = {};  // "no group yet", "joining", "in a group", "failed", "left"
    bool is_at_checkpoint = false;
    contract::Progress progress = {};
    std::string call = {};                                    // as contract::LastCall's words
    std::optional<std::chrono::nanoseconds> since_call = {};  // it began, or ended
    std::optional<double> share_in_calls = {};                // of the recorded ones' time
    // Of the process, so far; the share since its start. Of one that has ended nothing is known.
    std::optional<std::chrono::milliseconds> cpu_time = {};
    std::optional<double> cpu_share = {};  // of a processor
    std::optional<std::uint64_t> resident_bytes = {};
    std::string waits_in = {};  // as ProcessState's
};

struct RunView {
    int attempt = 1;  // of `attempts`
    int attempts = 1;
    int world_size = 0;
    std::vector<RankRow> ranks = {};  // of this host
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
