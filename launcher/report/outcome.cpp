// Reads error files of workers that have ended.
#include "launcher/report/outcome.hpp"

#include "base/net/socket.hpp"
#include "contract/exit_code.hpp"
#include "launcher/process/signals.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/hints.hpp"
#include "launcher/report/report_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

milliseconds between(Worker::Clock::time_point start, Worker::Clock::time_point end) {
    return std::chrono::duration_cast<milliseconds>(end - start);
}

// A peer that the world does not have is none.
std::optional<contract::ErrorReport> error_of(int rank, const JobEnd& job) {
    auto error = contract::read_error_file(job.error_files.of(rank));
    const auto world = static_cast<int>(job.workers.size());
    if (error && error->peer && (*error->peer < 0 || *error->peer >= world)) error->peer.reset();
    return error;
}

// One host, so that a local rank is a rank.
WorkerEnd end_of(const Worker& worker, const JobEnd& job, ErrorTexts texts) {
    const int rank = worker.local_rank;
    return {.rank = rank,
            .local_rank = rank,
            .pid = worker.process.pid(),
            .status = worker.ended.value(),
            .stopped_with = worker.stopped_with,
            .ran_for = between(worker.started_at, worker.ended_at),
            .stop_took = worker.stopped_with != 0
                             ? between(worker.asked_to_stop_at, worker.ended_at)
                             : milliseconds{0},
            .error = texts == ErrorTexts::known ? error_of(rank, job) : std::nullopt,
            .gpu = job.gpu_of ? job.gpu_of(rank) : "",
            .last_stderr = worker.last_lines.text()};
}

std::vector<WorkerEnd> ends_of(const JobEnd& job, ErrorTexts texts = ErrorTexts::known) {
    std::vector<WorkerEnd> ends;
    for (const std::size_t index : job.order) {
        ends.push_back(end_of(job.workers[index], job, texts));
    }
    return ends;
}

JobFacts facts_of(const JobEnd& job) {
    return {.host = base::host_name(),
            .attempt = job.attempt,
            .attempts = job.attempts,
            .hints = {},
            .report_file = job.report_file,
            .lines = job.lines};
}

milliseconds time_of(const JobEnd& job) {
    milliseconds longest{0};
    for (const std::size_t index : job.order) {
        const Worker& worker = job.workers[index];
        longest = std::max(longest, between(worker.started_at, worker.ended_at));
    }
    return longest;
}

std::vector<std::string> hints_for_root(const WorkerEnd& root, const JobEnd& job) {
    HintFacts facts{.status = root.status, .text = root.last_stderr, .rank = root.rank};
    if (root.error) facts.text += "\n" + root.error->message + "\n" + root.error->callstack;
    // Our own SIGKILL needs no explanation.
    if (root.stopped_with != 0) facts.status = {};
    if (facts.status.signal == SIGKILL) {
        facts.oom = compare(job.oom_before, read_oom_counts());
    }
    return hints_for(facts);
}

int exit_code_for(int code, ExitCode rule) {
    return rule == ExitCode::torchrun && code != contract::exit_ok ? contract::exit_error : code;
}

RootError root_error(const WorkerEnd& root, const RootCause& root_cause, const JobEnd& job) {
    const ExitStatus& status = root.status;
    const int code = status.ok() ? root_cause.exit_code : status.code;
    return {.error_file = job.error_files.of(root.local_rank),
            .error_code = status.signal != 0 ? -status.signal : code,
            .otherwise = {headline(root, root_cause)}};
}

Outcome with_json(Outcome outcome, JobReport report, const JobEnd& job) {
    if (job.report_file.empty()) return outcome;
    report.exit_code = outcome.exit_code;
    report.message = outcome.text;
    report.ran_for = time_of(job);
    outcome.json = to_json(report);
    return outcome;
}

Outcome failed(std::span<const WorkerEnd> ends, const RootCause& root_cause, const JobEnd& job) {
    JobFacts facts = facts_of(job);
    facts.hints = hints_for_root(ends[root_cause.index], job);
    Outcome outcome{exit_code_for(root_cause.exit_code, job.exit_code),
                    failure_text(ends, root_cause, facts)};
    outcome.root = root_error(ends[root_cause.index], root_cause, job);
    outcome.failed_rank = root_cause.rank;
    return with_json(
        std::move(outcome),
        {.outcome = "failed", .facts = std::move(facts), .root_cause = root_cause, .ended = ends},
        job);
}

}  // namespace

Outcome outcome_of(const JobEnd& job) {
    std::vector<WorkerEnd> ends = ends_of(job);
    if (job.user_signal != 0) {
        // Who signals a whole job may reach a worker before us: it was stopped all the same.
        for (WorkerEnd& end : ends) {
            const int signal = end.status.exit_code() - contract::exit_signal_base;
            if (end.stopped_with == 0 && is_stop_signal(signal)) end.stopped_with = signal;
        }
        return with_json({contract::exit_signal_base + job.user_signal,
                          stop_text(job.user_signal, ends, job.lines)},
                         {.outcome = "stopped",
                          .signal = job.user_signal,
                          .facts = facts_of(job),
                          .ended = ends},
                         job);
    }
    if (const auto root_cause = whose_fault(ends)) return failed(ends, *root_cause, job);
    if (ends.size() != job.workers.size()) {
        return with_json({contract::exit_error, "workers did not end"},
                         {.outcome = "failed", .facts = facts_of(job), .ended = ends}, job);
    }
    return with_json({}, {.outcome = "succeeded", .facts = facts_of(job), .ended = ends}, job);
}

std::optional<FirstFailure> failure_so_far(const JobEnd& job, ErrorTexts texts) {
    return first_failure(ends_of(job, texts), texts);
}

Outcome not_started(int exit_code, const std::string& why, const JobEnd& job) {
    Outcome outcome{exit_code_for(exit_code, job.exit_code), why};
    outcome.root = RootError{"", exit_code, {why}};
    return with_json(std::move(outcome), {.outcome = "not_started", .facts = facts_of(job)}, job);
}

Outcome stopped_before_restart(int signal, const JobEnd& job) {
    const std::vector<WorkerEnd> ends = ends_of(job);
    return with_json({contract::exit_signal_base + signal,
                      "stopped by " + signal_name(signal) + " before the restart"},
                     {.outcome = "stopped",
                      .signal = signal,
                      .facts = facts_of(job),
                      .root_cause = whose_fault(ends),
                      .ended = ends},
                     job);
}

void publish(Outcome& outcome) {
    const char* own = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (!outcome.root || own == nullptr || *own == '\0') return;
    const RootError& root = *outcome.root;
    const int problem =
        contract::copy_error_file(root.error_file, own, root.error_code, root.otherwise);
    if (problem != 0) {
        outcome.text += (outcome.text.empty() ? "" : "\n") +
                        std::string("cannot write TORCHELASTIC_ERROR_FILE ") + own + ": " +
                        std::strerror(problem);
    }
}

}  // namespace ddp::launcher
