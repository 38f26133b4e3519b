// Onlookers: those outside a job who look at it, by ddp-launch inspect and as Prometheus.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/agent/attempt/attempt.hpp"
#include "launcher/agent/coordinator_role.hpp"
#include "launcher/agent/event_source.hpp"
#include "launcher/inspect/run_door.hpp"
#include "launcher/metrics/metrics_door.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::launcher {

class Onlookers {
public:
    using Time = RankRow::Time;

    // `metrics`: nothing: nobody asks for them.
    Onlookers(Poller& events, RunFacts facts, std::optional<MetricsListener> metrics)
        : facts_(std::move(facts)), door_(events, tag_of(Source::door)) {
        if (metrics) metrics_.emplace(events, tag_of(Source::metrics), *std::move(metrics));
    }

    RunDoor& door() { return door_; }
    // An event of Source::door or Source::metrics. `attempt`: the one that runs, or null; `role`:
    // of a job of several hosts, else null.
    void serve(Poller::Tag tag, const Attempt* attempt, CoordinatorRole* role);
    // Those who wait for what other hosts have to show, once that is here, or next() has come.
    void answer_waiting(const Attempt* attempt, const CoordinatorRole* role);
    std::optional<Time> next() const { return answers_by_; }
    // A job of several hosts has ended: what remains of it is how the ranks of all were.
    void note_end(const CoordinatorRole& role, const Outcome& outcome);

private:
    static constexpr std::size_t most_waiting = 16;  // more are shown this host's ranks

    void receive_guest(const Attempt* attempt, CoordinatorRole* role);

    RunFacts facts_;
    RunDoor door_;
    std::optional<MetricsDoor> metrics_;
    std::vector<base::UniqueFd> waiting_;
    std::optional<Time> answers_by_;  // while anybody waits
};

}  // namespace ddp::launcher
