// RankRow: a rank at a moment, as it is shown to those outside the job (docs/inspect.md).
#pragma once

#include "contract/rank_record.hpp"
#include "launcher/process/exit_status.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp::launcher {

struct RankRow {
    using Time = std::chrono::steady_clock::time_point;

    std::string host = {};  // another's, by its name; empty: this one
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
    // What it has of its host, so far; the share since its start. Of one that has ended nothing is
    // known.
    struct Use {
        std::optional<std::chrono::milliseconds> cpu_time = {};
        std::optional<double> cpu_share = {};  // of a processor
        std::optional<std::uint64_t> resident_bytes = {};
    };
    Use use = {};
    std::string waits_in = {};  // as ProcessState's
    Time read_at = {};          // by its host's clock
};

}  // namespace ddp::launcher
