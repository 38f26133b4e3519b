#include "launcher/verdict/hang_watch.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

bool any_held_for_debugger(const WatchedWorkers& workers) {
    return std::ranges::any_of(workers.all, &Worker::stopped_for_debugger);
}

}  // namespace

std::vector<std::string> HangWatch::look(Time now, const WatchedWorkers& workers) {
    if (!observer_.is_due(now)) return {};
    const std::vector<RankState> ranks = observer_.look(now, workers);
    return news_.consider(now, ranks, observer_.usual(), any_held_for_debugger(workers));
}

std::optional<HangFacts> HangWatch::facts(const WatchedWorkers& workers) const {
    const bool any_failed = std::ranges::any_of(workers.all, [](const Worker& worker) {
        return worker.ended && !worker.ended->ok() && worker.stopped_with == 0;
    });
    return news_.facts(observer_.read(workers), any_failed);
}

Sighting HangWatch::see(Time now, const WatchedWorkers& workers,
                        const std::vector<CallKey>& calls) {
    if (!observer_.next()) return {};
    Sighting seen{.ranks = observer_.look(now, workers)};
    std::vector<CallKey> wanted = waited_calls(seen.ranks);
    wanted.insert(wanted.end(), calls.begin(), calls.end());
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    seen.usual = observer_.usual().tell(wanted);
    seen.is_alarm = std::ranges::any_of(seen.ranks, [&](const RankState& rank) {
        return waits_for(UsualTimes::least, rank, now) ||
               (rank.held_since && now - *rank.held_since >= UsualTimes::least);
    });
    seen.is_held_for_debugger = any_held_for_debugger(workers);
    return seen;
}

Sighting HangWatch::see_end(const WatchedWorkers& workers) const {
    return {.ranks = observer_.read(workers)};
}

}  // namespace ddp::launcher
