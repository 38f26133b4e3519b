#include "launcher/agent/attempt/hang_stacks.hpp"

#include "base/log.hpp"
#include "contract/rank_record.hpp"
#include "launcher/verdict/process_state.hpp"

#include <ddp/error.hpp>

#include <utility>

namespace ddp::launcher {
namespace {

// Verdicts may come in turns; each reading stops ranks for a moment.
constexpr std::chrono::seconds least_between{5};

}  // namespace

void HangStacks::consider(Time now, const std::optional<Verdict>& verdict,
                          const WatchedWorkers& workers) {
    if (!verdict || (verdict_ && verdict_->is_same_as(*verdict))) return;
    verdict_ = verdict;
    known_.clear();
    begin(now, verdict->worth_reading(), workers);
}

void HangStacks::begin(Time now, const std::vector<int>& ranks, const WatchedWorkers& workers) {
    if (!is_wanted_ || reader_.is_reading() || (began_ && now - *began_ < least_between)) return;
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
        wanted.push_back({rank, process_of_rank(record.pid, worker.process.pid())});
    }
    if (wanted.empty()) return;
    began_ = now;
    try {
        reader_.begin(now, std::move(wanted));
    } catch (const SystemError& error) {
        base::log_debug("launcher", error.what());  // the verdict has been said
    }
}

std::vector<std::string> HangStacks::take_news(Time now) {
    auto stacks = reader_.take(now);
    if (!stacks) return {};
    known_ = *std::move(stacks);
    std::vector<std::string> texts;
    for (const RankStacks& one : known_) {
        texts.push_back(text_of_one(one, waiting_.contains(one.rank) ? ", which waits" : ""));
    }
    return texts;
}

}  // namespace ddp::launcher
