// From workers that have ended to what the job's end means: the exit code, the text for the user
// and the copies for machines. The rule itself is in failure.hpp and pure; here is what it needs
// from error files and the kernel.
#pragma once

#include "contract/error_file.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/oom_watch.hpp"
#include "launcher/worker/worker.hpp"

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// The root cause as torch's agent passes it on.
struct RootError {
    std::string error_file = {};  // may not exist
    int error_code = 1;           // an exit code, or minus a signal
    contract::ErrorReport otherwise = {};
};

struct Outcome {
    int exit_code = 0;
    std::string text;       // for the user; empty when all went well
    std::string json = {};  // for report.json; empty when there is none to be written
    std::optional<RootError> root = {};
    std::optional<int> failed_rank = {};  // whose failure ended it: what another attempt may mend
};

struct JobEnd {
    std::span<const Worker> workers = {};
    std::span<const std::size_t> order = {};  // of their ends, by index; may lack some
    int user_signal = 0;                      // the one that asked a healthy job to stop, or 0
    ErrorFiles error_files = {};
    ExitCode exit_code = ExitCode::root_cause;
    std::string report_file = {};  // empty: none
    int attempt = 1;
    int attempts = 1;
    OomCounts oom_before = {};
    Lines lines = Lines::wrapped;
    // What GPU a local rank has, as text; may be empty.
    std::function<std::string(int local_rank)> gpu_of = {};
};

Outcome outcome_of(const JobEnd& end);

// Of a job of which some live. With ErrorTexts::unknown it reads no error file.
std::optional<FirstFailure> failure_so_far(const JobEnd& job, ErrorTexts texts);

// Of a job that could not start, or not go on.
Outcome not_started(int exit_code, const std::string& why, const JobEnd& end);

// Of a job that was stopped by this signal after a failed attempt, before the next one.
Outcome stopped_before_restart(int signal, const JobEnd& end);

// Once, for the outcome that counts: writes the launcher's own error file when it was given one
// (TORCHELASTIC_ERROR_FILE, as a worker of another launcher). What cannot be written is said in the
// outcome's text.
void publish(Outcome& outcome);

}  // namespace ddp::launcher
