#include "launcher/agent/attempt/hang_stacks.hpp"

#include "base/log.hpp"
#include "contract/rank_record.hpp"
#include "launcher/verdict/process_use.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <numeric>

namespace ddp::launcher {
namespace {

// Verdicts may come in turns; each reading stops ranks for a moment.
constexpr std::chrono::seconds least_between{5};
constexpr StackReader::Milliseconds time_for_one{200};

bool has_joined(const Worker& worker, const WatchedWorkers& workers) {
    return workers.pages.page(worker.local_rank).pid.load(contract::relaxed) != 0;
}

}  // namespace

void HangStacks::look_at_silent(Time now, const WatchedWorkers& workers) {
    if (workers.all.size() < 2) return;
    const auto threads = take_threads(now, workers);
    if (!threads) return;
    const bool all_run = std::ranges::all_of(workers.all, &Worker::running);
    const auto use = [&](int rank) {
        const auto index = static_cast<std::size_t>(rank - workers.first_rank);
        return look_at_use(workers.all[index].process.pid());
    };
    if (silent_.is_time_to_read(now, *threads, all_run, use)) {
        begin_all(now, Purpose::silent, workers);
    }
}

std::optional<std::vector<RankRuns>> HangStacks::take_threads(Time now,
                                                              const WatchedWorkers& workers) {
    if (!is_wanted_ || workers.all.size() > most_silent_ranks) return std::nullopt;
    if (reader_.is_reading()) return std::nullopt;  // which makes them run
    const bool any_has_joined = std::ranges::any_of(
        workers.all, [&](const Worker& worker) { return has_joined(worker, workers); });
    if (!any_has_joined) return threads_.take(now, workers);
    threads_.end();
    silent_.forget();
    return std::nullopt;
}

void HangStacks::read_silent(Time now, const WatchedWorkers& workers, std::uint64_t question) {
    if (!is_wanted_ || workers.all.size() > most_silent_ranks) return;
    const bool is_free = !reader_.is_reading();
    if (is_free) {
        question_ = question;
        begin_all(now, Purpose::told, workers);
        if (reader_.is_reading()) return;
    }
    readings_ = {.question = question, .ended = is_free ? ended_ : std::vector<int>{}};
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
    const bool is_judged = silent_.verdict() && silent_.verdict()->is_same_as(*verdict);
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
    question_ = question;
    begin(now, Purpose::question, ranks, workers);
}

void HangStacks::begin(Time now, Purpose purpose, const std::vector<int>& ranks,
                       const WatchedWorkers& workers) {
    std::vector<StackReader::Wanted> wanted;
    recorded_.clear();
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
        if (record.pid != 0) recorded_[rank] = call && call->is_in;
        wanted.push_back({rank, process_of_rank(record.pid, worker.process.pid())});
    }
    if (wanted.empty()) return;
    const bool is_of_all = purpose == Purpose::silent || purpose == Purpose::told;
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
    if (purpose_ == Purpose::silent || purpose_ == Purpose::told) {
        return judge(now, *std::move(stacks));
    }
    // A verdict may have gone meanwhile.
    if (purpose_ == Purpose::question || verdict_) tell(*std::move(stacks));
}

void HangStacks::judge(Time now, std::vector<RankStacks> stacks) {
    std::vector<RankReading> ranks;
    ranks.reserve(stacks.size());
    for (const RankStacks& one : stacks) ranks.push_back(reading_now(one));
    threads_.note_reading(ranks);
    if (purpose_ == Purpose::told) {
        readings_ = {.question = question_, .ranks = std::move(ranks), .ended = ended_};
        return;
    }
    silent_.judge(now, ranks, ended_);
    if (!silent_.verdict()) return;
    judged_ = std::move(stacks);
}

void HangStacks::tell(std::vector<RankStacks> stacks) {
    known_ = std::move(stacks);
    if (purpose_ == Purpose::question) answer_ = {question_, known_};
    for (const RankStacks& one : known_) {
        const auto known = recorded_.find(one.rank);
        const bool waits =
            known != recorded_.end() ? known->second : reading_of(one).call.has_value();
        news_.push_back(text_of_one(one, waits ? ", which waits" : ""));
    }
}

}  // namespace ddp::launcher
