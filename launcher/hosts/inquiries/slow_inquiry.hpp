// SlowInquiry: who slows down a job of several hosts, a rank or a network that loses packets, from
// what all of them tell of stretches of time. Pure.
// Invariant: a member tells of those ranks alone that the round's table gives it.
#pragma once

#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/verdict/slow_news.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class SlowInquiry {
public:
    using Time = std::chrono::steady_clock::time_point;
    // For hosts that tell nothing: theirs are not in groups, or nobody looks there.
    static constexpr std::chrono::seconds longest_wait{10};

    // What was told in the last one is forgotten.
    void begin_round(const RoundMessage& round);
    void note(Time now, MemberId by, PacesMessage message);

    struct News {
        std::vector<std::string> texts;   // for the users
        std::vector<MemberId> concerned;  // the hosts of slow ranks, and of lossy networks
    };
    // Once all have told. Mostly nothing.
    News take_news(Time now);
    // What stands.
    const std::optional<SlowFacts>& facts() const { return news_.facts(); }

private:
    RoundMessage round_;
    std::map<MemberId, Paces> told_;  // since the last judgement
    Time first_told_{};
    SlowNews news_;
    LossNews loss_;
};

}  // namespace ddp::launcher
