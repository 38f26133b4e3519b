// This host's part of a round, as the coordinator is told of it. Of a round that runs here or did
// last.
#pragma once

#include "launcher/agent/attempt/attempt.hpp"
#include "launcher/hosts/member.hpp"
#include "launcher/hosts/messages/messages.hpp"

namespace ddp::launcher {

class HostPart {
public:
    HostPart() = default;
    // Throws Error where this host, as that member, is not in it.
    HostPart(const RoundMessage& round, MemberId member);

    const RoundMessage& round() const { return round_; }  // 0: there was none yet
    MemberId member() const { return own_.member; }
    bool has(int rank) const { return own_.has(rank); }
    HostPlace place() const;

    void tell_progress(Member& member, const StatusMessage& part) const;
    void tell_sighting(Member& member, Sighting seen, std::uint64_t question = 0) const {
        member.saw({.round = round_.round, .question = question, .seen = std::move(seen)});
    }
    void tell_alarm(Member& member, Sighting seen) const { tell_sighting(member, std::move(seen)); }
    void tell_paces(Member& member, Paces paces) const {
        member.paces({.round = round_.round, .paces = std::move(paces)});
    }
    void tell_stacks(Member& member, std::uint64_t question, std::vector<RankStacks> stacks) const {
        member.stacks({.round = round_.round, .question = question, .stacks = std::move(stacks)});
    }
    void tell_threads(Member& member, std::vector<RankRuns> threads) const {
        member.threads({.round = round_.round, .threads = std::move(threads)});
    }
    void tell_readings(Member& member, HangStacks::Readings told) const {
        member.readings({.round = round_.round,
                         .question = told.question,
                         .ranks = std::move(told.ranks),
                         .ended = std::move(told.ended)});
    }
    // All of what has been recorded of them, when they have ended.
    void tell_timelines(Member& member, const WatchedWorkers& workers) const;
    // How they are once they have ended.
    void tell_rows(Member& member, const WatchedWorkers& workers) const;
    // Whether the order is a question about its ranks; it has been answered then, or will be.
    // `attempt`: null: nothing runs here.
    bool answer(Member& member, const MemberOrder& order, Attempt* attempt) const;
    // How its workers ended, and where not all ended well what they had called. Whether they did.
    bool tell_ends(Member& member, const AttemptEnd& end) const;

private:
    void show(Member& member, const ShowMessage& show, const Attempt* attempt) const;

    RoundMessage round_;
    HostRanks own_;
};

}  // namespace ddp::launcher
