#include "launcher/agent/attempt/hang_stacks.hpp"

#include "base/log.hpp"
#include "contract/rank_record.hpp"
#include "launcher/verdict/process_state.hpp"
#include "launcher/verdict/system_call.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <numeric>

namespace ddp::launcher {
namespace {

// Verdicts may come in turns; each reading stops ranks for a moment.
constexpr std::chrono::seconds least_between{5};
constexpr std::chrono::seconds between_judgements{1};
constexpr std::size_t most_silent = 64;  // ranks of a host that are read together
constexpr StackReader::Milliseconds time_for_one{200};

bool has_joined(const Worker& worker, const WatchedWorkers& workers) {
    return workers.pages.page(worker.local_rank).pid.load(contract::relaxed) != 0;
}

}  // namespace

void HangStacks::look_at_silent(Time now, const WatchedWorkers& workers) {
    if (!is_wanted_ || workers.all.size() > most_silent) return;
    if (reader_.is_reading()) return;  // which makes them run
    look_for_slow(now, workers);
    if (now < next_judgement_ || reader_.is_reading()) return;
    next_judgement_ = now + between_judgements;
    std::vector<StackJudge::Runs> threads;
    const auto add = [&](int rank, bool is_of_first, pid_t pid, pid_t tid) {
        const auto runs = runs_of(pid, tid);
        if (runs) threads.push_back({rank, is_of_first, *runs});
    };
    for (const Worker& worker : workers.all) {
        if (has_joined(worker, workers)) return judge_.forget();
        if (!worker.running()) continue;
        const int rank = workers.first_rank + worker.local_rank;
        const pid_t pid = worker.process.pid();
        add(rank, true, pid, pid);
        if (const auto tid = judge_.waiting_thread(rank)) add(rank, false, pid, *tid);
    }
    if (judge_.is_time_to_read(now, threads)) begin_all(now, Purpose::judgement, workers);
}

// Who hangs is not slow, nor is who begins.
void HangStacks::look_for_slow(Time now, const WatchedWorkers& workers) {
    const bool is_first = !next_look_;
    if (!is_first && now < *next_look_) return;
    next_look_ = now + SilentPace::between_looks;
    if (is_first) return;
    if (judge_.verdict()) return pace_.forget();
    const bool makes_sense =
        workers.all.size() > 1 && std::ranges::all_of(workers.all, [&](const Worker& worker) {
            return worker.running() && !has_joined(worker, workers);
        });
    if (!makes_sense) {
        next_look_ = Time::max();
        return pace_.forget();
    }
    std::vector<SilentPace::Look> looks;
    for (const Worker& worker : workers.all) {
        const pid_t pid = worker.process.pid();
        const auto runs = runs_of(pid, pid);
        looks.push_back({.rank = workers.first_rank + worker.local_rank,
                         .pid = pid,
                         .waits = may_wait_for_others(system_call_of(pid)),
                         .switches = runs ? runs->switches : 0});
    }
    const auto use = [&](int rank) {
        const auto index = static_cast<std::size_t>(rank - workers.first_rank);
        return look_at_use(workers.all[index].process.pid());
    };
    pace_.note(now, looks, use);
    if (pace_.is_time_to_read(now) && !judge_.is_between_readings()) {
        judge_.note_foreign_reading();
        begin_all(now, Purpose::pace, workers);
    }
}

void HangStacks::begin_all(Time now, Purpose purpose, const WatchedWorkers& workers) {
    std::vector<int> all(workers.all.size());
    std::iota(all.begin(), all.end(), workers.first_rank);
    begin(now, purpose, all, workers);
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
    if (!is_judged) return begin(now, Purpose::verdict, ranks, workers);
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

void HangStacks::read(Time now, const std::vector<int>& ranks, const WatchedWorkers& workers,
                      std::uint64_t question) {
    if (!may_read(now)) return;
    answer_.question = question;
    begin(now, Purpose::question, ranks, workers);
}

void HangStacks::begin(Time now, Purpose purpose, const std::vector<int>& ranks,
                       const WatchedWorkers& workers) {
    std::vector<StackReader::Wanted> wanted;
    waiting_.clear();
    ended_.clear();
    for (const int rank : ranks) {
        const auto index = static_cast<std::size_t>(rank - workers.first_rank);
        if (rank < workers.first_rank || index >= workers.all.size()) continue;
        const Worker& worker = workers.all[index];
        if (!worker.running()) {
            ended_.push_back(rank);
            continue;
        }
        const contract::RankRecord record =
            contract::read_page(workers.pages.page(worker.local_rank));
        const auto call = record.last_call();
        if (call && call->is_in) waiting_.insert(rank);
        wanted.push_back({rank, process_of_rank(record.pid, worker.process.pid())});
    }
    if (wanted.empty()) return;
    const bool is_of_all = purpose == Purpose::judgement || purpose == Purpose::pace;
    if (!is_of_all) began_ = now;  // those have a rhythm of their own
    purpose_ = purpose;
    const auto most = StackReader::most_time + time_for_one * static_cast<int>(wanted.size());
    try {
        reader_.begin(now, std::move(wanted), most,
                      is_of_all ? StackReader::Whom::who_may_communicate : StackReader::Whom::all);
    } catch (const SystemError& error) {
        base::log_debug("launcher", error.what());  // the verdict has been said
    }
}

void HangStacks::take(Time now) {
    auto stacks = reader_.take(now);
    if (!stacks) return;
    if (purpose_ == Purpose::pace) return pace_.judge(now, *stacks);
    if (purpose_ == Purpose::judgement) return judge(now, *std::move(stacks));
    // A verdict may have gone meanwhile.
    if (purpose_ == Purpose::question || verdict_) tell(*std::move(stacks));
}

void HangStacks::judge(Time now, std::vector<RankStacks> stacks) {
    std::vector<StackJudge::Rank> ranks;
    for (const RankStacks& one : stacks) {
        const auto call = call_of(one);
        ranks.push_back({.stacks = one,
                         .state = look_at_process(one.pid),
                         .runs = call ? runs_of(one.pid, call->tid) : std::nullopt});
    }
    judge_.judge(now, ranks, ended_);
    if (!judge_.verdict()) return;
    for (const int rank : judge_.verdict()->waiting) waiting_.insert(rank);
    judged_ = std::move(stacks);
}

void HangStacks::tell(std::vector<RankStacks> stacks) {
    known_ = std::move(stacks);
    if (purpose_ == Purpose::question) answer_.stacks = known_;
    for (const RankStacks& one : known_) {
        news_.push_back(text_of_one(one, waiting_.contains(one.rank) ? ", which waits" : ""));
    }
}

}  // namespace ddp::launcher
