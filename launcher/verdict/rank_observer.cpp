#include "launcher/verdict/rank_observer.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

// A rank that waits for so long may be about to wait for too long.
constexpr milliseconds long_enough{200};
// A look that comes later than that has not been for a reason that stops others, too.
constexpr milliseconds much_later{250};

// What has begun before it, and may go on, begins then.
void begin_after(RankState::Time time, contract::RankRecord& record) {
    record.joined = std::max(record.joined, time);
    for (contract::OperationRecord& operation : record.operations) {
        if (operation.ended) {
            operation.ended = std::max(*operation.ended, time);
        } else {
            operation.started = std::max(operation.started, time);
        }
    }
    for (contract::GroupRecord& group : record.groups) {
        if (group.transfer) group.transfer->since = std::max(group.transfer->since, time);
    }
}

// Another number as soon as the rank has called something, a call of its has ended, or it has come
// to another step.
std::uint64_t activity_of(const contract::RankRecord& record) {
    auto number = static_cast<std::uint64_t>(record.step);
    if (!record.operations.empty()) number += record.operations.back().serial;
    for (const contract::GroupRecord& group : record.groups) {
        number += group.started + group.ended;
        if (group.transfer) {
            number += static_cast<std::uint64_t>(group.transfer->since.time_since_epoch().count());
        }
    }
    return number;
}

}  // namespace

std::vector<RankState> RankObserver::look(Time now, const WatchedWorkers& workers) {
    if (next_ && now - *next_ > much_later) resumed_ = now;
    memory_.resize(workers.all.size());
    std::vector<RankState> ranks = read(workers);
    bool any_joined = false;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        learn(now, ranks[i].record, memory_[i]);
        any_joined = any_joined || ranks[i].record.pid != 0;
    }
    usual_.settle();
    next_ = now + (any_joined ? interval : interval_at_start);
    const bool any_held = std::ranges::any_of(
        memory_, [](const Memory& memory) { return memory.held_since.has_value(); });
    const bool any_waits = std::ranges::any_of(
        ranks, [&](const RankState& rank) { return waits_for(long_enough, rank, now); });
    if (!std::exchange(looks_at_processes_, false) && !any_held && !any_waits) return ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        look_at_process(now, ranks[i], workers.all[i], memory_[i]);
        if (memory_[i].held_since) next_ = std::min(*next_, now + interval);
    }
    return ranks;
}

std::vector<RankState> RankObserver::read(const WatchedWorkers& workers) const {
    std::vector<RankState> ranks;
    for (const Worker& worker : workers.all) {
        RankState& state = ranks.emplace_back(
            RankState{.rank = workers.first_rank + worker.local_rank,
                      .has_ended = !worker.running(),
                      .started = worker.started_at,
                      .record = contract::read_page(workers.pages.page(worker.local_rank))});
        begin_after(resumed_, state.record);
    }
    return ranks;
}

void RankObserver::learn(Time now, const contract::RankRecord& record, Memory& memory) {
    for (const contract::OperationRecord& operation : record.operations) {
        if (operation.serial <= memory.seen) continue;
        if (!operation.ended) break;  // and what comes after it, in its turn
        const bool follows = operation.serial == memory.seen + 1;
        // A standstill of the host teaches nothing.
        const bool was_still = operation.started < resumed_ && *operation.ended >= resumed_;
        if (!was_still) usual_.note(operation, follows ? memory.free_since : std::nullopt);
        memory.seen = operation.serial;
        memory.free_since = operation.ended;
    }
    std::vector<contract::TransferRecord> transfers;
    for (const contract::GroupRecord& group : record.groups) {
        if (group.transfer) transfers.push_back(*group.transfer);
    }
    for (const contract::TransferRecord& before : memory.transfers) {
        const bool waits_still =
            std::ranges::any_of(transfers, [&](const contract::TransferRecord& one) {
                return one.since == before.since && one.line == before.line;
            });
        if (!waits_still && before.since >= resumed_) usual_.note(before, now - before.since);
    }
    memory.transfers = std::move(transfers);
}

void RankObserver::look_at_process(Time now, RankState& state, const Worker& worker,
                                   Memory& memory) const {
    if (state.has_ended) return memory.held_since.reset();
    // Who has been let go on meanwhile is not held as it was.
    if (is_reading_ && memory.looked_at && activity_of(state.record) == memory.activity) {
        state.process = memory.process;
        state.cpu_share = memory.cpu_share;
        state.held_since = memory.held_since;
        return;
    }
    const pid_t pid = process_of_rank(state.record.pid, worker.process.pid());
    state.process = launcher::look_at_process(pid);
    if (state.process.state == 'Z') state.process.state = 0;  // its pidfd tells more
    // Who has gone on is held by who reads its stack, for a moment.
    if (is_reading_ && state.process.tracer != 0) {
        state.process.tracer = 0;
        state.process.state = 'S';
    }
    const milliseconds used = state.process.cpu_time - memory.cpu_time;
    if (memory.looked_at && now - *memory.looked_at >= interval / 2) {
        memory.cpu_share = std::chrono::duration<double>(used) / (now - *memory.looked_at);
    }
    const std::uint64_t activity = activity_of(state.record);
    // A debugger that holds it from time to time does not hold it.
    const bool has_run = used > milliseconds{0} || activity != memory.activity;
    if (state.process.is_held() && has_run) memory.held_since.reset();
    memory.looked_at = now;
    memory.activity = activity;
    memory.process = state.process;
    memory.cpu_time = state.process.cpu_time;
    state.cpu_share = memory.cpu_share;
    if (!state.process.is_held()) {
        memory.held_since.reset();
    } else if (!memory.held_since) {
        memory.held_since = now;
    }
    state.held_since = memory.held_since;
}

}  // namespace ddp::launcher
