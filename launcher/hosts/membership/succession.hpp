// Succession: whom a host follows that has lost its coordinator, or whether it takes over itself.
// Pure: the time is handed in.
//
// Candidates are the hosts of the last round that can serve, but for the coordinator's, in rank
// order. The first takes over at once. Each other one tries those before it for two seconds times
// its place, and then takes over, too, but goes on trying: it steps down for the first that
// answers. Who cannot serve tries all in turn.
#pragma once

#include "launcher/hosts/membership/host_contact.hpp"
#include "launcher/hosts/membership/membership_actions.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

namespace ddp::launcher {

class Succession {
public:
    using Time = HostContact::Time;

    // `own`: the number that this host had in the round.
    Succession(const RoundMessage& last, MemberId own, const MembershipRules& rules, Time now);

    // Whether hosts other than the coordinator's can be most of the round, and one of them serve.
    static bool is_possible(const RoundMessage& last);

    // Whom to try to reach now; null: nobody.
    const HostRanks* next() const;
    // It could not be reached, or has gone.
    void pass();
    // It gave no answer, and is not tried again.
    void exclude();
    // It has ended the connection without one: once it may have stepped down.
    void doubt();
    // Whether this host is to serve now. It goes on trying others.
    bool serves(Time now) const { return own_place_ && now >= serves_from_; }
    // It has found one that serves, and joins that one first.
    void defer(Time now);
    // It cannot, or knows too little.
    void renounce() {
        own_place_.reset();
        std::erase_if(candidates_, [this](const HostRanks& one) { return one.member == own_; });
    }
    // Since when the coordinator is lost, and until when it makes sense to go on.
    Time ends() const { return ends_; }
    std::chrono::milliseconds time() const { return time_; }
    // The round, and this host's number in it.
    const RoundMessage& last() const { return last_; }
    MemberId own() const { return own_; }

private:
    RoundMessage last_;
    MemberId own_;
    std::vector<HostRanks> candidates_;
    std::optional<std::size_t> own_place_;
    Time serves_from_{};
    std::chrono::milliseconds time_;
    Time ends_;
    std::size_t at_ = 0;
    std::set<MemberId> doubted_;
};

}  // namespace ddp::launcher
