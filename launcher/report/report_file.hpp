// report.json: the end of a job for machines, in the log folder of a launch with --log-dir. UTF-8,
// one object:
//
//   format        1; grows when a field changes its meaning, not when one is added
//   outcome       "succeeded", "failed", "stopped" (by a signal to the launcher), "not_started"
//   exit_code     the launcher's
//   signal        that stopped the job, else 0
//   host          of the launcher
//   attempt, attempts
//   started, ended    seconds since 1970, of this attempt
//   root_rank     the rank to blame, else null
//   message       what the user reads: the whole report
//   hints         texts
//   hang          who held up the job when it ended, else null, as of several hosts: an object
//     kind        "held", "missing", "ahead", "mismatch", "crossed", "stuck"
//     ranks       to blame
//     text        what the user has read
//     stacks      of some of those and one that waited, as read then: objects with rank, pid,
//                 python and native (of each thread tid, name, frames, own_frame),
//                 has_all_native, problem
//   slow          which ranks the others had to wait for again and again, else null: ranks, text
//   workers       of this attempt, of all hosts, by rank:
//     rank, host, local_rank, pid, gpu
//     part        "root_cause", "failed", "left" (because of a peer), "stopped" (by us), "fine"
//     exit_code   128 + signal when a signal ended it
//     signal      that ended it, else 0; signal_name, core_dumped
//     stopped_with, stop_seconds   our last signal to it, else 0; from our first one to its end
//     seconds     from its start to its end
//     peer        the rank it left because of, else null
//     error       the message of its error file, else null; callstack
//     last_call   the collective that it was in, or came from: "in barrier, operation 7 (a.cpp:9)"
//     last_stderr its last lines there
#pragma once

#include "launcher/report/failure_report.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <span>
#include <string>

namespace ddp::launcher {

struct JobReport {
    std::string outcome = {};
    int exit_code = 0;
    int signal = 0;
    JobFacts facts = {};
    std::chrono::milliseconds ran_for{0};
    std::string message = {};
    std::optional<RootCause> root_cause = {};
    std::span<const WorkerEnd> ended = {};
};

std::string to_json(const JobReport& report);
// Its `hang` and `slow`.
nlohmann::json hang_json(const std::optional<HangFacts>& hang);
nlohmann::json slow_json(const std::optional<SlowFacts>& slow);

// Writes it whole, making the folders above it. Returns what went wrong, for the user, or nothing.
std::string write_report_file(const std::string& path, const std::string& json);

}  // namespace ddp::launcher
