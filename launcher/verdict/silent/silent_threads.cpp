#include "launcher/verdict/silent/silent_threads.hpp"

#include "launcher/verdict/system_call.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ddp::launcher {

bool may_wait_for_others(const std::string& system_call) {
    constexpr std::array<std::string_view, 9> calls{"futex",
                                                    "poll",
                                                    "ppoll",
                                                    "select",
                                                    "pselect",
                                                    "epoll_wait",
                                                    "recvfrom of a socket",
                                                    "recvmsg of a socket",
                                                    "read of a socket"};
    return std::ranges::find(calls, system_call) != calls.end();
}

void look_at_uses(std::vector<RankRuns>& threads) {
    for (RankRuns& one : threads) {
        if (one.is_of_first) one.use = look_at_use(one.pid);
    }
}

std::optional<std::vector<RankRuns>> SilentThreads::take(Time now, const WatchedWorkers& workers) {
    if (next_look_ && now < *next_look_) return std::nullopt;
    next_look_ = now + between_looks;
    note_waits(workers);
    if (now < next_telling_) return std::nullopt;
    next_telling_ = now + between_tellings;
    std::vector<RankRuns> threads = threads_of(workers);
    tallies_.clear();
    return threads;
}

void SilentThreads::note_reading(std::span<const RankReading> ranks) {
    call_threads_.clear();
    for (const RankReading& one : ranks) {
        if (one.call) call_threads_[one.rank] = one.call->tid;
    }
}

void SilentThreads::note_waits(const WatchedWorkers& workers) {
    for (const Worker& worker : workers.all) {
        if (!worker.running()) continue;
        Tally& tally = tallies_[workers.first_rank + worker.local_rank];
        ++tally.looks;
        tally.waits += may_wait_for_others(system_call_of(worker.process.pid())) ? 1 : 0;
    }
}

std::vector<RankRuns> SilentThreads::threads_of(const WatchedWorkers& workers) const {
    std::vector<RankRuns> threads;
    for (const Worker& worker : workers.all) {
        if (!worker.running()) continue;
        const int rank = workers.first_rank + worker.local_rank;
        const pid_t pid = worker.process.pid();
        if (const auto runs = runs_of(pid, pid)) {
            const auto tally = tallies_.find(rank);
            const auto [looks, waits] = tally == tallies_.end() ? Tally{} : tally->second;
            threads.push_back(
                {.rank = rank, .pid = pid, .runs = *runs, .looks = looks, .waits = waits});
        }
        const auto call = call_threads_.find(rank);
        if (call == call_threads_.end()) continue;
        if (const auto runs = runs_of(pid, call->second)) {
            threads.push_back({.rank = rank, .pid = pid, .is_of_first = false, .runs = *runs});
        }
    }
    return threads;
}

}  // namespace ddp::launcher
