#include "launcher/agent/attempt/attempt_end.hpp"

#include "contract/exit_code.hpp"

#include <cstddef>
#include <utility>

namespace ddp::launcher {

Outcome AttemptEnd::outcome() const { return with_survivors(outcome_of(ends_of(workers), job)); }

Outcome AttemptEnd::outcome(int exit_code, const std::string& why) const {
    return with_survivors(not_started(exit_code, why, job));
}

Outcome AttemptEnd::outcome_when_stopped(int signal) const {
    return stopped_before_restart(signal, ends_of(workers), job);
}

std::vector<AttemptEnd::TimedEnd> AttemptEnd::ends() const {
    std::vector<TimedEnd> timed;
    std::vector<WorkerEnd> ends = ends_of(workers);
    for (std::size_t i = 0; i < ends.size(); ++i) {
        timed.push_back({std::move(ends[i]), workers.workers[workers.order[i]].ended_at});
    }
    return timed;
}

Outcome AttemptEnd::with_survivors(Outcome outcome) const {
    if (survivors.empty()) return outcome;
    outcome.text += (outcome.text.empty() ? "" : "\n") + survivors;
    if (outcome.exit_code == contract::exit_ok) outcome.exit_code = contract::exit_error;
    outcome.failed_rank.reset();  // not a state to start anew from
    return outcome;
}

RunView view_of(const AttemptEnd& so_far, const WatchedWorkers& workers) {
    return {.attempt = so_far.job.facts.attempt,
            .attempts = so_far.job.facts.attempts,
            .world_size = so_far.workers.world_size,
            .ranks = rows_of(workers, RankRow::Time::clock::now()),
            .hang = so_far.job.facts.hang,
            .slow = so_far.job.facts.slow};
}

}  // namespace ddp::launcher
