// Reads error files of workers that have ended.
#include "launcher/report/outcome.hpp"

#include "contract/exit_code.hpp"
#include "launcher/process/signals.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/hints.hpp"
#include "launcher/report/report_file.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

milliseconds between(Worker::Clock::time_point start, Worker::Clock::time_point end) {
    return std::chrono::duration_cast<milliseconds>(end - start);
}

// A peer that the world does not have is none.
std::optional<contract::ErrorReport> error_of(int local_rank, const HostWorkers& host) {
    auto error = contract::read_error_file(host.error_files.of(local_rank));
    const bool has_peer = error && error->peer;
    if (has_peer && (*error->peer < 0 || *error->peer >= host.world_size)) error->peer.reset();
    return error;
}

WorkerEnd end_of(const Worker& worker, const HostWorkers& host, ErrorTexts texts) {
    const int local_rank = worker.local_rank;
    return {.rank = host.first_rank + local_rank,
            .local_rank = local_rank,
            .pid = worker.process.pid(),
            .status = worker.ended.value(),
            .stopped_with = worker.stopped_with,
            .ran_for = between(worker.started_at, worker.ended_at),
            .stop_took = worker.stopped_with != 0
                             ? between(worker.asked_to_stop_at, worker.ended_at)
                             : milliseconds{0},
            .error = texts == ErrorTexts::known ? error_of(local_rank, host) : std::nullopt,
            .gpu = host.gpu_of ? host.gpu_of(local_rank) : "",
            .last_stderr = worker.last_lines.text(),
            .last_call = host.last_call_of ? host.last_call_of(local_rank) : ""};
}

milliseconds longest_of(std::span<const WorkerEnd> ends) {
    milliseconds longest{0};
    for (const WorkerEnd& end : ends) longest = std::max(longest, end.ran_for);
    return longest;
}

std::vector<std::string> hints_for_root(const WorkerEnd& root) {
    HintFacts facts{.status = root.status, .text = root.last_stderr, .rank = root.rank};
    if (root.error) facts.text += "\n" + root.error->message + "\n" + root.error->callstack;
    // Our own SIGKILL needs no explanation.
    if (root.stopped_with != 0) facts.status = {};
    facts.oom = root.oom;
    return hints_for(facts);
}

int exit_code_for(int code, ExitCode rule) {
    return rule == ExitCode::torchrun && code != contract::exit_ok ? contract::exit_error : code;
}

// Another host's file is not here; what it says is.
RootError root_error(const WorkerEnd& root, const RootCause& root_cause, const JobEnd& job) {
    const ExitStatus& status = root.status;
    const int code = status.ok() ? root_cause.exit_code : status.code;
    const bool is_here = root.host.empty();
    RootError error{.error_file = is_here ? job.error_files.of(root.local_rank) : "",
                    .error_code = status.signal != 0 ? -status.signal : code,
                    .otherwise = {headline(root, root_cause)}};
    if (!is_here && root.error) error.otherwise = *root.error;
    return error;
}

Outcome with_json(Outcome outcome, JobReport report, const JobEnd& job) {
    if (job.facts.report_file.empty() && !job.facts.wants_json) return outcome;
    report.exit_code = outcome.exit_code;
    report.message = outcome.text;
    report.ran_for = longest_of(report.ended);
    outcome.json = to_json(report);
    return outcome;
}

Outcome failed(std::span<const WorkerEnd> ends, const RootCause& root_cause, const JobEnd& job) {
    JobFacts facts = job.facts;
    facts.hints = hints_for_root(ends[root_cause.index]);
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

std::optional<RootCause> root_cause_of(std::span<const WorkerEnd> ends, const JobEnd& job) {
    const std::optional<RootCause> root = whose_fault(ends);
    const std::optional<HangFacts>& hang = job.facts.hang;
    if (!hang || hang->ranks.empty()) return root;
    const auto blamed = std::ranges::find(ends, hang->ranks.front(), &WorkerEnd::rank);
    if (blamed == ends.end()) return root;
    const auto index = static_cast<std::size_t>(blamed - ends.begin());
    if (hang->has_ended_job) {
        return RootCause{.rank = blamed->rank,
                         .index = index,
                         .named_by_peers = true,
                         .held_up = true,
                         .exit_code = root ? root->exit_code : contract::exit_error};
    }
    const auto failed_by_error = [](const WorkerEnd& end) {
        return end.status.signal == 0 && !end.status.ok() && end.stopped_with == 0 && end.error;
    };
    const bool is_mismatch = hang->kind == "mismatch" && hang->ranks.size() * 2 <= ends.size();
    if (!is_mismatch || !root || !failed_by_error(ends[root->index]) || !failed_by_error(*blamed)) {
        return root;
    }
    return RootCause{.rank = blamed->rank, .index = index, .exit_code = blamed->status.exit_code()};
}

std::vector<WorkerEnd> ends_of(const HostWorkers& workers, ErrorTexts texts) {
    std::vector<WorkerEnd> ends;
    std::optional<OomEvidence> oom;
    for (const std::size_t index : workers.order) {
        WorkerEnd end = end_of(workers.workers[index], workers, texts);
        const bool may_be_oom = end.status.signal == SIGKILL && end.stopped_with == 0;
        if (may_be_oom && texts == ErrorTexts::known) {
            if (!oom) oom = compare(workers.oom_before, read_oom_counts());
            end.oom = *oom;
        }
        ends.push_back(std::move(end));
    }
    return ends;
}

Outcome outcome_of(std::vector<WorkerEnd> ends, const JobEnd& job) {
    if (job.user_signal != 0) {
        // Who signals a whole job may reach a worker before us: it was stopped all the same.
        for (WorkerEnd& end : ends) {
            const int signal = end.status.exit_code() - contract::exit_signal_base;
            if (end.stopped_with == 0 && is_stop_signal(signal)) end.stopped_with = signal;
        }
        return with_json(
            {contract::exit_signal_base + job.user_signal,
             stop_text(job.user_signal, ends, job.facts)},
            {.outcome = "stopped", .signal = job.user_signal, .facts = job.facts, .ended = ends},
            job);
    }
    if (const auto root_cause = root_cause_of(ends, job)) return failed(ends, *root_cause, job);
    if (std::cmp_not_equal(ends.size(), job.workers)) {
        return with_json({contract::exit_error, "workers did not end"},
                         {.outcome = "failed", .facts = job.facts, .ended = ends}, job);
    }
    JobFacts facts = job.facts;
    facts.hang.reset();  // it went on
    return with_json({}, {.outcome = "succeeded", .facts = std::move(facts), .ended = ends}, job);
}

Outcome not_started(int exit_code, const std::string& why, const JobEnd& job) {
    Outcome outcome{exit_code_for(exit_code, job.exit_code), why};
    outcome.root = RootError{"", exit_code, {why}};
    return with_json(std::move(outcome), {.outcome = "not_started", .facts = job.facts}, job);
}

Outcome stopped_before_restart(int signal, std::vector<WorkerEnd> ends, const JobEnd& job) {
    return with_json({contract::exit_signal_base + signal,
                      "stopped by " + signal_name(signal) + " before the restart"},
                     {.outcome = "stopped",
                      .signal = signal,
                      .facts = job.facts,
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
