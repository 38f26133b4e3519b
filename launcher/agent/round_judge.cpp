#include "launcher/agent/round_judge.hpp"

#include "contract/exit_code.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

// Those that cannot tell how their workers ended.
std::string hosts_without_ends(const RoundEnd& round) {
    std::string names;
    for (const HostRanks& host : round.round.table.hosts) {
        const bool has_some = std::ranges::any_of(
            round.ends, [&](const WorkerEnd& end) { return host.has(end.rank); });
        if (!has_some) names += (names.empty() ? "" : ", ") + host.host;
    }
    return names;
}

std::string coordinators_host(const RoundMessage& round) {
    const HostRanks* host = round.table.find(round.coordinator);
    return host == nullptr ? "" : host->host;
}

}  // namespace

RoundVerdict RoundJudge::judge(const RoundEnd& round, std::string report_file,
                               std::optional<HangFacts> hang, std::optional<SlowFacts> slow) {
    JobEnd job{.workers = round.round.table.world_size,
               .user_signal = round.asked.reason == StopReason::user ? round.signal : 0,
               .exit_code = exit_code_,
               .facts = facts_,
               .error_files = {}};
    job.facts.attempt = 1 + restarts_.restarts();
    job.facts.report_file = std::move(report_file);
    job.facts.hang = std::move(hang);
    job.facts.slow = std::move(slow);
    if (round.asked.reason == StopReason::success) return {.outcome = outcome_of(round.ends, job)};
    if (job.user_signal != 0) {
        RoundVerdict verdict{.outcome = outcome_of(round.ends, job)};
        verdict.line = "stopped by " + signal_name(job.user_signal);
        return verdict;
    }
    if (!round.troubles.empty()) {
        const RoundEnd::Trouble& first = round.troubles.front();
        const std::string why = first.host + ": " + first.text;
        return {.outcome = not_started(first.exit_code, why, job), .line = why};
    }
    return round.asked.reason == StopReason::loss ? judge_loss(round, job)
                                                  : judge_failure(round, job);
}

RoundVerdict RoundJudge::judge_failure(const RoundEnd& round, const JobEnd& job) {
    const auto root = root_cause_of(round.ends, job);
    // They left because of a rank of which nobody knows how it ended.
    const bool is_loss = round.asked.has_lost_host &&
                         (!root || part_of(round.ends[root->index], false) == Part::left);
    if (is_loss) return judge_loss(round, job);
    RoundVerdict verdict{.outcome = outcome_of(round.ends, job)};
    if (!root) {
        const bool all_ended = verdict.outcome.exit_code == contract::exit_ok;
        const std::string why = "the workers were stopped, and no rank is to blame";
        if (all_ended) verdict.outcome = not_started(contract::exit_error, why, job);
        verdict.line = verdict.outcome.text;
        return verdict;
    }
    const WorkerEnd& end = round.ends[root->index];
    verdict.line = headline(end, *root) + (end.host.empty() ? "" : " on host " + end.host);
    const HostRanks* const host = round.round.table.host_of(root->rank);
    if (host != nullptr) verdict.culprit = host->member;
    consider_restart(
        verdict,
        {.rank = root->rank, .exit_code = verdict.outcome.exit_code, .lasted = round.lasted});
    return verdict;
}

RoundVerdict RoundJudge::judge_loss(const RoundEnd& round, const JobEnd& job) {
    const std::string lost =
        round.is_successors ? coordinators_host(round.round) : hosts_without_ends(round);
    const std::string why = (lost.empty() ? "a host" : "host " + lost) +
                            " was lost, and no rank is to blame for the end of the job";
    RoundVerdict verdict{.outcome = not_started(contract::exit_host_lost, why, job), .line = why};
    consider_restart(verdict,
                     {.rank = -1, .exit_code = contract::exit_host_lost, .lasted = round.lasted});
    return verdict;
}

void RoundJudge::consider_restart(RoundVerdict& verdict, const AttemptFailure& failure) {
    const RestartPolicy::Decision decision = restarts_.decide(failure);
    if (!decision.text.empty()) {
        verdict.outcome.text += "\n" + decision.text;
        verdict.line += "; " + decision.text;
    }
    if (decision.restart) verdict.restart_in = decision.delay;
}

}  // namespace ddp::launcher
