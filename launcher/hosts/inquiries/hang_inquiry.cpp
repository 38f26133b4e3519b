#include "launcher/hosts/inquiries/hang_inquiry.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

// Of the agent that asks.
constexpr std::chrono::milliseconds own_delay{250};

}  // namespace

void HangInquiry::begin_round(const RoundMessage& round) {
    round_ = round;
    seen_.clear();
    news_ = HangNews(on_hang_, stands_);
    by_stacks_.reset();
    is_alarm_ = is_asking_ = has_ended_job_ = false;
    stacks_ = {};
}

void HangInquiry::note(MemberId by, SightingMessage message) {
    const HostRanks* const host = round_.table.find(by);
    if (host == nullptr || message.round != round_.round || !news_.is_wanted()) return;
    if (message.question != 0 && message.question != question_) return;  // too late
    std::erase_if(message.seen.ranks, [&](const RankState& rank) { return !host->has(rank.rank); });
    for (RankState& rank : message.seen.ranks) rank.host = host->host;
    is_alarm_ = is_alarm_ || message.seen.is_alarm;
    // What is to be judged together was seen at one time.
    const auto known = seen_.find(by);
    const bool has_answered =
        is_asking_ && known != seen_.end() && known->second.question == question_;
    if (has_answered && message.question == 0 && message.seen.is_alarm) return;
    seen_.insert_or_assign(by, std::move(message));
}

void HangInquiry::note(MemberId by, StacksMessage message) {
    const HostRanks* const host = round_.table.find(by);
    if (host == nullptr || message.round != round_.round) return;
    if (message.question < stacks_.first_question || message.question > question_) return;
    for (RankStacks& one : message.stacks) {
        const bool is_wanted = std::ranges::count(stacks_.ranks, one.rank) > 0;
        if (host->has(one.rank) && is_wanted)
            stacks_.told.insert_or_assign(one.rank, std::move(one));
    }
}

void HangInquiry::note_by_stacks(const std::optional<Verdict>& verdict) {
    is_alarm_ = is_alarm_ || verdict.has_value();
    const bool is_same = verdict && by_stacks_ ? verdict->is_same_as(*by_stacks_)
                                               : verdict.has_value() == by_stacks_.has_value();
    if (!is_same) by_stacks_ = verdict;
}

std::vector<int> HangInquiry::stacks_to_ask_for() const {
    std::vector<int> ranks;
    if (stacks_.asks_left == 0) return ranks;
    for (const int rank : stacks_.ranks) {
        if (!stacks_.told.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
}

std::optional<LookMessage> HangInquiry::take_question(Time now) {
    const bool is_due = now - asked_ >= pause_for(round_.table.world_size);
    if (!is_alarm_ || is_asking_ || !is_due) return std::nullopt;
    LookMessage look{.round = round_.round, .question = ++question_};
    for (const auto& [member, message] : seen_) {
        for (const UsualTime& one : message.seen.usual) look.calls.push_back(one.call);
        const std::vector<CallKey> waited = waited_calls(message.seen.ranks);
        look.calls.insert(look.calls.end(), waited.begin(), waited.end());
    }
    std::ranges::sort(look.calls);
    look.calls.erase(std::unique(look.calls.begin(), look.calls.end()), look.calls.end());
    look.calls.resize(std::min(look.calls.size(), most_calls_asked));
    look.stacks_of = stacks_to_ask_for();
    stacks_.asks_left = std::max(0, stacks_.asks_left - 1);
    is_asking_ = true;
    is_alarm_ = false;
    asked_ = now;
    return look;
}

bool HangInquiry::has_all_answers() const {
    return std::ranges::all_of(round_.table.hosts, [&](const HostRanks& host) {
        const auto found = seen_.find(host.member);
        return found != seen_.end() && found->second.question == question_;
    });
}

// By rank: places in the table are.
std::vector<RankState> HangInquiry::ranks_seen(std::optional<std::uint64_t> question) const {
    std::vector<RankState> ranks;
    for (const HostRanks& host : round_.table.hosts) {
        const auto found = seen_.find(host.member);
        if (found == seen_.end() || (question && found->second.question != *question)) continue;
        const std::vector<RankState>& some = found->second.seen.ranks;
        ranks.insert(ranks.end(), some.begin(), some.end());
    }
    return ranks;
}

bool HangInquiry::waits_for_stacks(Time now) const {
    return now - stacks_.verdict_at < time_for_stacks && !stacks_to_ask_for().empty();
}

HangInquiry::News HangInquiry::take_news(Time now) {
    if (!is_asking_ || (!has_all_answers() && now - asked_ < time_to_answer)) return {};
    is_asking_ = false;
    if (now - asked_ > time_to_answer + own_delay) {  // this agent did not run: all that is old
        is_alarm_ = true;
        news_.postpone(now);
        return {};
    }
    ToldTimes usual;
    bool is_held_for_debugger = false;
    for (const auto& [member, message] : seen_) {
        if (message.question != question_) continue;
        for (const UsualTime& one : message.seen.usual) usual.add(one);
        is_held_for_debugger = is_held_for_debugger || message.seen.is_held_for_debugger;
    }
    News news;
    const std::optional<Verdict> before = news_.verdict();
    news.texts =
        news_.consider(now, ranks_seen(question_), usual, is_held_for_debugger, by_stacks_);
    const std::optional<Verdict>& verdict = news_.verdict();
    is_alarm_ = is_alarm_ || verdict.has_value() || news_.awaits_held();
    if (verdict && (!before || !before->is_same_as(*verdict))) {
        stacks_ = {.verdict_at = now,
                   .ranks = verdict->worth_reading(),
                   .first_question = question_ + 1,
                   .asks_left = most_asks};
    }
    for (const auto& one : {before, verdict}) {
        if (!one) continue;
        for (const int rank : one->ranks) {
            const HostRanks* const host = round_.table.host_of(rank);
            if (host != nullptr) news.concerned.push_back(host->member);
        }
    }
    if (news_.ends_job() && !waits_for_stacks(now)) {
        news.stops_because_of = news_.to_blame().value_or(-1);
        has_ended_job_ = true;
    }
    return news;
}

std::optional<HangFacts> HangInquiry::facts(bool any_failed) const {
    if (!news_.is_wanted()) return std::nullopt;
    std::optional<HangFacts> facts = news_.facts(ranks_seen(std::nullopt), any_failed);
    if (facts) facts->has_ended_job = has_ended_job_;
    if (facts && news_.verdict()) {
        for (const auto& [rank, stacks] : stacks_.told) facts->stacks.push_back(stacks);
    }
    return facts;
}

}  // namespace ddp::launcher
