// Onlookers: those outside a job who look at it, by ddp-launch inspect and as Prometheus.
#pragma once

#include "launcher/agent/attempt/attempt.hpp"
#include "launcher/agent/coordinator_role.hpp"
#include "launcher/agent/event_source.hpp"
#include "launcher/inspect/run_door.hpp"
#include "launcher/metrics/metrics_door.hpp"

#include <optional>
#include <utility>

namespace ddp::launcher {

class Onlookers {
public:
    // `metrics`: nothing: nobody asks for them.
    Onlookers(Poller& events, RunFacts facts, std::optional<MetricsListener> metrics)
        : facts_(std::move(facts)), door_(events, tag_of(Source::door)) {
        if (metrics) metrics_.emplace(events, tag_of(Source::metrics), *std::move(metrics));
    }

    RunDoor& door() { return door_; }
    // An event of Source::door or Source::metrics. `attempt`: the one that runs, or null; `role`:
    // of a job of several hosts, else null.
    void serve(Poller::Tag tag, const Attempt* attempt, const CoordinatorRole* role) {
        const auto look = [&] {
            std::optional<RunView> view = view_now(attempt);
            if (view && role != nullptr) role->tell_verdict(*view);
            return view;
        };
        if (source_of(tag) == Source::door) return door_.receive_guest(look());
        metrics_->run_ready(index_of(tag), [&](MetricsFormat format) {
            return metrics_text(facts_, look().value_or(door_.last_view()), format);
        });
    }

private:
    RunFacts facts_;
    RunDoor door_;
    std::optional<MetricsDoor> metrics_;
};

}  // namespace ddp::launcher
