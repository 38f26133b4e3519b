// Quorum: whether the hosts that a coordinator has are enough of a round's to act for the job, so
// that no two coordinators can. Pure.
//
// The hosts of the round decide, each once, under the number that they had in it: one that comes
// again is another. Those of the round before decide beside them until half of them have begun this
// one: until then most of them might follow somebody who knows of that one alone.
//
// Invariant: when half of a round's hosts are here, or follow this coordinator into a later round,
// no successor has most of them.
#pragma once

#include "launcher/hosts/membership/rank_table.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace ddp::launcher {

class Quorum {
public:
    // Half is enough for the coordinator of the round; a successor, who does not know whether that
    // one acts yet, needs more.
    enum class Share { half, most };

    // This round is given out.
    void begin(const RankTable& table) {
        Electorate hosts;
        for (const HostRanks& host : table.hosts) hosts.members.insert(host.member);
        electorates_.push_back(std::move(hosts));
    }
    // The member has begun the last round.
    void started(MemberId member) {
        if (electorates_.empty()) return;
        const auto last = std::prev(electorates_.end());
        for (auto one = electorates_.begin(); one != last; ++one) {
            if (one->members.contains(member)) one->followed.insert(member);
        }
        electorates_.erase(std::remove_if(electorates_.begin(), last,
                                          [](const Electorate& one) {
                                              return is_enough(Share::half, one.followed.size(),
                                                               one.members.size());
                                          }),
                           last);
    }
    // Under which number one is counted now that was this member of the round.
    MemberId number_of(MemberId was) const {
        const auto found = numbers_.find(was);
        return found == numbers_.end() ? was : found->second;
    }
    // It joins again, maybe not for the first time.
    void renamed(MemberId was, MemberId now) {
        for (Electorate& one : electorates_) {
            if (one.members.erase(number_of(was)) > 0) one.members.insert(now);
        }
        numbers_[was] = now;
    }
    // It has left by its own word, and decides nothing any more.
    void left(MemberId member) {
        for (Electorate& one : electorates_) {
            one.members.erase(member);
            one.followed.erase(member);
        }
    }

    // Also before the first round.
    template <class IsHere>
    bool is_met(Share share, const IsHere& is_here) const {
        return std::ranges::all_of(electorates_, [&](const Electorate& one) {
            const auto here = static_cast<std::size_t>(std::ranges::count_if(one.members, is_here));
            return is_enough(share, here, one.members.size());
        });
    }

private:
    struct Electorate {
        std::set<MemberId> members;
        std::set<MemberId> followed;  // into a later round
    };
    static bool is_enough(Share share, std::size_t part, std::size_t whole) {
        return share == Share::half ? 2 * part >= whole : 2 * part > whole;
    }

    std::map<MemberId, MemberId> numbers_;  // of those that came again, by the first
    std::vector<Electorate> electorates_;   // that of the last round is the last
};

}  // namespace ddp::launcher
