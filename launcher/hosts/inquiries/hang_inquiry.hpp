// HangInquiry: who holds up a job of several hosts. When ranks of one wait for long, all hosts of
// the round are asked what is to be seen of theirs, again and again until nobody waits any more,
// and what they answer is judged as one host's is. Pure.
//
//   idle     until an alarm comes
//   asking   until all have answered, or had their time; then judged
//   resting  until the next question; idle again when no answer was an alarm, and no verdict stands
//
// Invariant: a member tells of those ranks alone that the round's table gives it; who has not
// answered the last question is not known.
#pragma once

#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/verdict/hang_news.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class HangInquiry {
public:
    using Time = HangNews::Time;
    static constexpr std::chrono::milliseconds time_to_answer{400};
    // A job is not ended before the stacks are told, or so long after the verdict.
    static constexpr std::chrono::seconds time_for_stacks{3};
    // Between two questions; each host's answer takes work.
    static std::chrono::microseconds pause_for(int ranks) {
        return std::chrono::milliseconds{250} + std::chrono::microseconds{100} * ranks;
    }

    HangInquiry(OnHang on_hang, std::chrono::milliseconds stands)
        : on_hang_(on_hang), stands_(stands), news_(on_hang, stands) {}

    // What was seen in the last one is forgotten.
    void begin_round(const RoundMessage& round);
    void note(MemberId by, SightingMessage message);
    void note(MemberId by, StacksMessage message);

    // What SilentInquiry has found, of ranks that record nothing.
    void note_by_stacks(const std::optional<Verdict>& verdict);

    // To all hosts of the round; nothing: none is due.
    std::optional<LookMessage> take_question(Time now);
    const RoundMessage& round() const { return round_; }

    struct News {
        std::vector<std::string> texts;       // for the users
        std::vector<MemberId> concerned;      // the hosts of the ranks that hold up the job
        std::optional<int> stops_because_of;  // the job is to be; -1: of none that others wait for
    };
    // Once all have answered, or had time to. Mostly nothing.
    News take_news(Time now);

    // With the stacks that have been told. Of a round that has ended; `any_failed`: a worker has,
    // by itself.
    std::optional<HangFacts> facts(bool any_failed) const;

private:
    static constexpr int most_asks = 24;  // hosts may be reading others, and rest for 5 s
    // Of the verdict that stands.
    struct StacksWanted {
        Time verdict_at{};
        std::vector<int> ranks = {};
        std::uint64_t first_question = 0;     // that asks for them
        int asks_left = 0;                    // for those that have not been told
        std::map<int, RankStacks> told = {};  // by rank
    };
    std::vector<int> stacks_to_ask_for() const;
    std::vector<RankState> ranks_seen(std::optional<std::uint64_t> question) const;
    bool has_all_answers() const;
    bool waits_for_stacks(Time now) const;

    OnHang on_hang_;
    std::chrono::milliseconds stands_;
    HangNews news_;
    RoundMessage round_;
    std::map<MemberId, SightingMessage> seen_;  // the last of each
    std::optional<Verdict> by_stacks_;
    bool is_alarm_ = false;
    StacksWanted stacks_;
    bool has_ended_job_ = false;  // take_news() has said that it is to be
    std::uint64_t question_ = 0;  // the last one
    bool is_asking_ = false;
    Time asked_{};
};

}  // namespace ddp::launcher
