// Who is of the job, and which round runs: the coordinator's decisions. Pure: an event and the time
// go in, what to say to which member comes out. The agent that coordinates is a member like the
// others, of which it hears through itself.
//
//   succeeding  of a round whose coordinator is lost: waits for most of its hosts, and then until
//               no worker of it can live on the others
//   gathering   hosts join; complete with the most, or with the least after the last call
//   running     a round's table is out; every host of it runs its part
//   stopping    the round is over, for a reason; waits until no worker of it lives
//   judging     it ended well, by a failure, or in a static job by a loss: waits for restart() or
//               finish()
//   over        finish has been said
//
// Invariant: a round is given out only when every host of the one before has said that nothing of
// it lives, or its lease has run out: no two rounds live at once. Where there are successors, only
// one coordinator has a quorum of the last round's hosts, and none goes on without (quorum.hpp).
#pragma once

#include "launcher/hosts/membership/host_contact.hpp"
#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/membership/quorum.hpp"
#include "launcher/hosts/membership/rank_table.hpp"
#include "launcher/hosts/membership/roster.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

// How a member's part of a round ended.
enum class PartEnd : std::uint8_t { success, failure };

class Membership {
public:
    using Time = std::chrono::steady_clock::time_point;

    Membership(const MembershipRules& rules, Time now);
    // Succeeds the coordinator of this round.
    Membership(const MembershipRules& rules, RoundMessage last, Time now);

    // Each returns what is to be done, in this order.
    // A member is known by `size.member`, anew each time its agent starts.
    MembershipActions join(const HostSize& size, Time now);
    // The agent itself spoke (which a beat does, too); its kernel acknowledged what was sent.
    void heard(MemberId member, Time now);
    void acknowledged(MemberId member, Time now) {
        if (Member* known = roster_.find(member)) known->contact.acknowledge(now);
    }
    // It has answered what left for it at that time.
    void proven(MemberId member, Time at);
    // Whether a beat may be answered so that it lengthens the sender's lease.
    bool grants(Time now) const;
    // The member has begun its part of the round.
    void started(MemberId member, int round);
    // A worker of the member's part failed: with this rank.
    MembershipActions failed(MemberId member, int round, int rank, Time now);
    // The round is to end, as that rank holds up the others; -1: none that others wait for.
    MembershipActions hung(int rank);
    // Nothing of the round lives on the member's host.
    MembershipActions drained(MemberId member, int round, PartEnd end, Time now);
    // It goes, and nothing of the job lives there.
    MembershipActions leave(MemberId member, Time now);
    // Its connection has closed without that.
    MembershipActions closed(MemberId member, Time now);
    MembershipActions stop(int signal, Time now);
    // The answers to AskForJudgement. `counts`: it is one of the restarts that the job may use.
    MembershipActions restart(std::chrono::milliseconds delay, bool counts, Time now);
    MembershipActions finish(int exit_code);

    // What the time alone brings about; and when next, after `now`. Who is heard puts it off.
    MembershipActions look_at_time(Time now);
    std::optional<Time> next(Time now) const;

    int round() const { return last_.round; }
    int restarts() const { return last_.restarts; }
    // A member was in a later round than the one that this successor knows: it is to step down.
    bool is_outdated() const { return is_outdated_; }
    bool runs() const { return phase_ == Phase::running; }
    bool is_over() const { return phase_ == Phase::over; }

private:
    enum class Phase : std::uint8_t { succeeding, gathering, running, stopping, judging, over };
    using Member = Roster::Member;
    // Of the running or stopping round, a host on which something may live.
    struct Part {
        bool is_lost = false;
        Time lease_ends{};  // of a lost one
    };

    void say(std::string text) { actions_.emplace_back(SayEverywhere{std::move(text)}); }
    void send(MemberId to, MemberMessage message) {
        actions_.emplace_back(SendTo{to, std::move(message)});
    }
    MembershipActions take() { return std::exchange(actions_, {}); }

    void take_claim(const HostSize& size, Time now);
    bool has_quorum() const;
    void end_without_quorum();
    void gather(Time now);
    void look_at_newcomers(Time now);
    void look_at_ranks(Time now);
    void look_at_quiet(Time now);
    void look_at_parts(Time now);
    void start_round(std::vector<HostSize> hosts, Time now);
    void end_round(StopReason reason, int rank, int signal);
    void after_round(Time now);
    void lose(MemberId member, const std::string& why, Time now);
    void lose_part(MemberId member, Time lease_ends);
    void end(int exit_code);

    MembershipRules rules_;
    Phase phase_ = Phase::gathering;
    Roster roster_;
    std::map<MemberId, Part> parts_;
    Quorum quorum_;
    bool is_successor_ = false;  // and has given out no round
    bool is_outdated_ = false;
    HostLosses losses_;
    RoundMessage last_;
    StopReason reason_{};
    bool has_lost_host_ = false;  // of the last round
    Time gathering_ends_;
    std::optional<Time> last_call_ends_;
    Time not_before_{};  // the pause before a restart
    MembershipActions actions_;
};

}  // namespace ddp::launcher
