#include "launcher/verdict/hang_watch.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

bool any_held_for_debugger(const WatchedWorkers& workers) {
    return std::ranges::any_of(workers.all, &Worker::stopped_for_debugger);
}

// A call that this host knows is no alarm as long as it is patient with it.
bool is_alarming(const RankState& rank, const UsualTimes& usual, HangWatch::Time now) {
    const contract::RankRecord& record = rank.record;
    if (rank.has_ended) return false;
    if (rank.held_since && now - *rank.held_since >= UsualTimes::least) return true;
    if (record.phase == contract::Phase::joining && now - record.joined >= UsualTimes::least) {
        return true;
    }
    return std::ranges::any_of(record.groups, [&](const contract::GroupRecord& group) {
        const contract::OperationRecord* const waited =
            group.is_waiting() ? record.find_operation(group.id, group.waits_in()) : nullptr;
        if (waited != nullptr && now - waited->started >= usual.alarm_after(*waited)) return true;
        return group.transfer && now - group.transfer->since >= usual.patience(*group.transfer);
    });
}

pid_t process_of(int rank, const WatchedWorkers& workers, const std::vector<RankState>& ranks) {
    const auto index = static_cast<std::size_t>(rank - workers.first_rank);
    return process_of_rank(ranks[index].record.pid, workers.all[index].process.pid());
}
std::optional<ProcessUse> use_of(int rank, const WatchedWorkers& workers,
                                 const std::vector<RankState>& ranks) {
    return look_at_use(process_of(rank, workers, ranks));
}

}  // namespace

// Of a job that has ended, what stood.
void HangWatch::look_for_slow(Time now, const WatchedWorkers& workers,
                              const std::vector<RankState>& ranks) {
    if (std::ranges::all_of(ranks, &RankState::has_ended)) return;
    for (const RankState& rank : ranks) {
        if (rank.has_ended) slow_.forget(rank.rank);
    }
    shares_.note(now, ranks, observer_.resumed());
    const auto paces = shares_.take_paces(now, ranks);
    if (!paces) return;
    news_of_slow_ = slow_.consider(*paces, [&](int rank) { return use_of(rank, workers, ranks); });
}

std::vector<std::string> HangWatch::look(Time now, const WatchedWorkers& workers,
                                         const std::optional<Verdict>& by_stacks) {
    if (!observer_.is_due(now)) return {};
    const std::vector<RankState> ranks = observer_.look(now, workers);
    look_for_slow(now, workers, ranks);
    return news_.consider(now, ranks, observer_.usual(), any_held_for_debugger(workers), by_stacks);
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
    shares_.note(now, seen.ranks, observer_.resumed());
    if (auto paces = shares_.take_paces(now, seen.ranks)) {
        for (RankPace& pace : paces->ranks) pace.use = use_of(pace.rank, workers, seen.ranks);
        if (!paces->ranks.empty()) {
            const int rank = paces->ranks.front().rank;
            paces->tcp = look_at_tcp(process_of(rank, workers, seen.ranks));
        }
        paces_ = std::move(paces);
    }
    std::vector<CallKey> wanted = waited_calls(seen.ranks);
    wanted.insert(wanted.end(), calls.begin(), calls.end());
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    seen.usual = observer_.usual().tell(wanted);
    seen.is_alarm = std::ranges::any_of(seen.ranks, [&](const RankState& rank) {
        return is_alarming(rank, observer_.usual(), now);
    });
    seen.is_held_for_debugger = any_held_for_debugger(workers);
    return seen;
}

Sighting HangWatch::see_end(const WatchedWorkers& workers) const {
    return {.ranks = observer_.read(workers)};
}

}  // namespace ddp::launcher
