#include "launcher/hosts/inquiries/silent_inquiry.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr int most_looks = 1'000'000;

}  // namespace

void SilentInquiry::begin_round(const RoundMessage& round) {
    round_ = round;
    judge_.forget();
    told_.clear();
    uses_.clear();
    ended_.clear();
    answers_.clear();
    is_asking_ = false;
    slow_before_.clear();
}

// What was told before and not judged yet counts, too.
void SilentInquiry::note(Time now, MemberId by, const ThreadsMessage& message) {
    const HostRanks* const host = round_.table.find(by);
    if (host == nullptr || message.round != round_.round) return;
    std::vector<RankRuns> threads = message.threads;
    std::erase_if(threads, [&](const RankRuns& one) { return !host->has(one.rank); });
    Told& told = told_[by];
    for (RankRuns& one : threads) {
        one.host = host->host;
        if (one.use) uses_.insert_or_assign(one.rank, *std::move(one.use));
        one.use.reset();
        const auto before = std::ranges::find_if(told.threads, [&](const RankRuns& other) {
            return other.is_of_first && one.is_of_first && other.pid == one.pid;
        });
        if (before == told.threads.end()) continue;
        one.looks = std::min(one.looks + before->looks, most_looks);
        one.waits = std::min(one.waits + before->waits, one.looks);
    }
    told = {now, std::move(threads)};
}

// What it told of its threads before is older than that.
void SilentInquiry::note(MemberId by, ReadingsMessage message) {
    const HostRanks* const host = round_.table.find(by);
    if (host == nullptr || message.round != round_.round) return;
    if (!is_asking_ || message.question != question_) return;
    std::erase_if(message.ranks, [&](const RankReading& one) { return !host->has(one.rank); });
    std::erase_if(message.ended, [&](int rank) { return !host->has(rank); });
    for (RankReading& one : message.ranks) one.host = host->host;
    told_[by].threads.clear();
    answers_.insert_or_assign(by, std::move(message));
}

void SilentInquiry::note(MemberId by, const EndedMessage& message) {
    const HostRanks* const host = round_.table.find(by);
    const bool is_own = host != nullptr && host->has(message.end.rank);
    if (is_own && message.round == round_.round) ended_.insert(message.end.rank);
}

void SilentInquiry::note(const SightingMessage& message) {
    const bool any_records = std::ranges::any_of(
        message.seen.ranks, [](const RankState& rank) { return rank.record.pid != 0; });
    if (any_records && message.round == round_.round) judge_.forget();
}

// Its agent looks at none of them any more, and answers nothing.
bool SilentInquiry::has_ended(const HostRanks& host) const {
    for (int i = 0; i < host.slots; ++i) {
        if (!ended_.contains(host.first_rank + i)) return false;
    }
    return true;
}

bool SilentInquiry::has_all_answers() const {
    return std::ranges::all_of(round_.table.hosts, [&](const HostRanks& host) {
        return answers_.contains(host.member) || has_ended(host);
    });
}

std::optional<ReadMessage> SilentInquiry::take_question(Time now) {
    if (is_asking_) {
        if (has_all_answers() || now - asked_ >= time_to_answer) judge_answers(now);
        return std::nullopt;
    }
    if (now < next_look_) return std::nullopt;
    next_look_ = now + between_judgements;
    const auto threads = take_threads(now);
    if (!threads) return std::nullopt;
    const auto running = std::ranges::count_if(*threads, &RankRuns::is_of_first);
    const bool all_run = running == round_.table.world_size;
    const auto use = [this](int rank) {
        const auto found = uses_.find(rank);
        return found == uses_.end() ? std::nullopt : std::optional(found->second);
    };
    if (!judge_.is_time_to_read(now, *threads, all_run, use)) return std::nullopt;
    is_asking_ = true;
    asked_ = now;
    answers_.clear();
    return ReadMessage{.round = round_.round, .question = ++question_};
}

// By rank: places in the table are. Nothing where not all have told lately.
std::optional<std::vector<RankRuns>> SilentInquiry::take_threads(Time now) {
    std::vector<RankRuns> threads;
    for (const HostRanks& host : round_.table.hosts) {
        if (has_ended(host)) continue;
        const auto found = told_.find(host.member);
        if (found == told_.end()) return std::nullopt;
        const auto age = now - found->second.at;
        if (age > long_ago) judge_.forget();
        if (age > lately || found->second.threads.empty()) return std::nullopt;
        threads.insert(threads.end(), found->second.threads.begin(), found->second.threads.end());
    }
    for (auto& [member, told] : told_) {
        for (RankRuns& one : told.threads) one.looks = one.waits = 0;
    }
    return threads;
}

void SilentInquiry::judge_answers(Time now) {
    is_asking_ = false;
    std::vector<RankReading> ranks;
    std::vector<int> ended;
    for (const HostRanks& host : round_.table.hosts) {
        const auto found = answers_.find(host.member);
        if (found == answers_.end()) {
            for (int i = 0; has_ended(host) && i < host.slots; ++i) {
                ended.push_back(host.first_rank + i);
            }
            continue;
        }
        const ReadingsMessage& told = found->second;
        ranks.insert(ranks.end(), told.ranks.begin(), told.ranks.end());
        ended.insert(ended.end(), told.ended.begin(), told.ended.end());
    }
    const auto world_size = static_cast<std::size_t>(round_.table.world_size);
    if (ranks.size() + ended.size() != world_size) ranks.clear();
    judge_.judge(now, ranks, ended);
    answers_.clear();
}

SilentInquiry::News SilentInquiry::take_news() {
    News news{.texts = judge_.take_news_of_slow()};
    std::vector<int> ranks;
    if (!news.texts.empty()) {
        ranks = judge_.slow() ? judge_.slow()->ranks : std::vector<int>{};
        std::swap(ranks, slow_before_);
        ranks.insert(ranks.end(), slow_before_.begin(), slow_before_.end());
    }
    if (auto unread = judge_.take_unread()) {
        news.texts.push_back(std::move(unread->text));
        ranks.insert(ranks.end(), unread->ranks.begin(), unread->ranks.end());
    }
    for (const int rank : ranks) {
        const HostRanks* const host = round_.table.host_of(rank);
        if (host != nullptr) news.concerned.push_back(host->member);
    }
    return news;
}

}  // namespace ddp::launcher
