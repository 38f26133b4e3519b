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

// The workers of this host, of which some may live.
struct HostWorkers {
    std::span<const Worker> workers = {};
    std::span<const std::size_t> order = {};  // of their ends, by index; may lack some
    int first_rank = 0;                       // of the worker with local rank 0
    int world_size = 0;                       // of all hosts
    ErrorFiles error_files = {};
    OomCounts oom_before = {};
    // What GPU a local rank has, as text; may be empty.
    std::function<std::string(int local_rank)> gpu_of = {};
    // WorkerEnd's, of a local rank.
    std::function<std::string(int local_rank)> last_call_of = {};
};

// How those that have ended did, in that order. With ErrorTexts::unknown it reads no error file.
std::vector<WorkerEnd> ends_of(const HostWorkers& workers, ErrorTexts texts = ErrorTexts::known);

// What else is known of a job's end.
struct JobEnd {
    int workers = 0;      // that were started, on all hosts
    int user_signal = 0;  // the one that asked a healthy job to stop, or 0
    ExitCode exit_code = ExitCode::root_cause;
    JobFacts facts = {};  // the host: of the launcher; without hints
    ErrorFiles error_files = {};
};

// Who is to blame: whom a hang blames, where that is why the job was ended, or why all ranks have
// failed by an error of this library's that one of them had first by chance; else whose_fault().
std::optional<RootCause> root_cause_of(std::span<const WorkerEnd> ends, const JobEnd& job);

Outcome outcome_of(std::vector<WorkerEnd> ends, const JobEnd& job);

// Of a job that could not start, or not go on.
Outcome not_started(int exit_code, const std::string& why, const JobEnd& job);

// Of a job that was stopped by this signal after a failed attempt, before the next one.
Outcome stopped_before_restart(int signal, std::vector<WorkerEnd> ends, const JobEnd& job);

// Once, for the outcome that counts: writes the launcher's own error file when it was given one
// (TORCHELASTIC_ERROR_FILE, as a worker of another launcher). What cannot be written is said in the
// outcome's text.
void publish(Outcome& outcome);

}  // namespace ddp::launcher
