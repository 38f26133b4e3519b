#include "launcher/agent/attempt/hang_stacks.hpp"

#include "base/log.hpp"
#include "contract/rank_record.hpp"
#include "launcher/verdict/process_state.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <numeric>

namespace ddp::launcher {
namespace {

// Verdicts may come in turns; each reading stops ranks for a moment.
constexpr std::chrono::seconds least_between{5};
constexpr std::chrono::seconds between_looks{1};
constexpr std::size_t most_silent = 64;  // ranks of a host that are read together
constexpr StackReader::Milliseconds time_for_one{200};

pid_t pid_of(const Worker& worker, const contract::RankRecord& record) {
    return process_of_rank(record.pid, worker.process.pid());
}

}  // namespace

void HangStacks::look_at_silent(Time now, const WatchedWorkers& workers) {
    if (!is_wanted_ || now < next_look_ || workers.all.size() > most_silent) return;
    if (reader_.is_reading()) return;  // which makes them run
    next_look_ = now + between_looks;
    std::vector<StackJudge::FirstThread> threads;
    for (const Worker& worker : workers.all) {
        if (contract::read_page(workers.pages.page(worker.local_rank)).pid != 0) return;
        if (!worker.running()) continue;
        const int rank = workers.first_rank + worker.local_rank;
        const auto thread = StackJudge::first_thread_of(rank, worker.process.pid());
        if (thread) threads.push_back(*thread);
    }
    if (!judge_.is_time_to_read(now, threads)) return;
    const bool any_may_wait = std::ranges::any_of(workers.all, [](const Worker& worker) {
        return worker.running() && has_known_collectives(worker.process.pid());
    });
    if (!any_may_wait) return;
    std::vector<int> all(workers.all.size());
    std::iota(all.begin(), all.end(), workers.first_rank);
    is_for_judge_ = begin(now, all, workers);
}

void HangStacks::consider(Time now, const std::optional<Verdict>& verdict,
                          const WatchedWorkers& workers) {
    if (!verdict) {
        verdict_.reset();
        known_.clear();
        return;
    }
    if (verdict_ && verdict_->is_same_as(*verdict)) return;
    const bool is_judged = judge_.verdict() && judge_.verdict()->is_same_as(*verdict);
    if (!is_judged && !may_read(now)) return;  // later
    verdict_ = verdict;
    known_.clear();
    const std::vector<int> ranks = verdict->worth_reading();
    if (!is_judged) return read(now, ranks, workers);
    std::vector<RankStacks> some;
    for (const int rank : ranks) {
        const auto found = std::ranges::find(judged_, rank, &RankStacks::rank);
        if (found != judged_.end()) some.push_back(*found);
    }
    tell(std::move(some));
}

bool HangStacks::may_read(Time now) const {
    return is_wanted_ && !reader_.is_reading() && (!began_ || now - *began_ >= least_between);
}

void HangStacks::read(Time now, const std::vector<int>& ranks, const WatchedWorkers& workers) {
    if (may_read(now)) begin(now, ranks, workers);
}

bool HangStacks::begin(Time now, const std::vector<int>& ranks, const WatchedWorkers& workers) {
    std::vector<StackReader::Wanted> wanted;
    waiting_.clear();
    for (const int rank : ranks) {
        const auto index = static_cast<std::size_t>(rank - workers.first_rank);
        if (rank < workers.first_rank || index >= workers.all.size()) continue;
        const Worker& worker = workers.all[index];
        if (!worker.running()) continue;
        const contract::RankRecord record =
            contract::read_page(workers.pages.page(worker.local_rank));
        const auto call = record.last_call();
        if (call && call->is_in) waiting_.insert(rank);
        wanted.push_back({rank, pid_of(worker, record)});
    }
    if (wanted.empty()) return false;
    began_ = now;
    const auto most = StackReader::most_time + time_for_one * static_cast<int>(wanted.size());
    try {
        reader_.begin(now, std::move(wanted), most);
    } catch (const SystemError& error) {
        base::log_debug("launcher", error.what());  // the verdict has been said
        return false;
    }
    return true;
}

void HangStacks::take(Time now) {
    auto stacks = reader_.take(now);
    if (!stacks) return;
    if (!std::exchange(is_for_judge_, false)) return tell(*std::move(stacks));
    std::vector<ProcessState> states;
    std::vector<StackJudge::FirstThread> threads;
    for (const RankStacks& one : *stacks) {
        states.push_back(look_at_process(one.pid));
        if (const auto thread = StackJudge::first_thread_of(one.rank, one.pid)) {
            threads.push_back(*thread);
        }
    }
    judge_.judge(now, *stacks, threads, states);
    if (!judge_.verdict()) return;
    judged_ = *std::move(stacks);
    for (const int rank : judge_.verdict()->waiting) waiting_.insert(rank);
}

void HangStacks::tell(std::vector<RankStacks> stacks) {
    known_ = std::move(stacks);
    for (const RankStacks& one : known_) {
        news_.push_back(text_of_one(one, waiting_.contains(one.rank) ? ", which waits" : ""));
    }
}

}  // namespace ddp::launcher
