// Roster: the members of a job, and who of them may be in a round. Pure: the time is handed in.
// Invariant: of two members that ask for one node rank only one is eligible.
#pragma once

#include "launcher/hosts/membership/host_contact.hpp"
#include "launcher/hosts/membership/rank_table.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class Roster {
public:
    using Time = HostContact::Time;

    struct Member {
        HostSize size;
        HostContact contact;
        std::uint64_t arrival = 0;                      // 1, 2, ...
        Time may_join_at{};                             // of a host that was lost more than once
        std::optional<Time> waits_for_rank_since = {};  // that of an agent of its host, of before
        bool is_known_to_wait = false;
        // It was a member after this time: it has answered what left then.
        Time proven{};
    };

    // Why a host of this size cannot join; nothing: it can.
    std::optional<std::string> refusal_of(const HostSize& size, int max_hosts) const;
    Member& add(const HostSize& size, Time may_join_at, Time now);
    void erase(MemberId member) { members_.erase(member); }
    Member* find(MemberId member) {
        const auto found = members_.find(member);
        return found == members_.end() ? nullptr : &found->second;
    }
    const Member* find(MemberId member) const {
        const auto found = members_.find(member);
        return found == members_.end() ? nullptr : &found->second;
    }
    bool contains(MemberId member) const { return members_.contains(member); }
    auto begin() { return members_.begin(); }
    auto end() { return members_.end(); }
    auto begin() const { return members_.begin(); }
    auto end() const { return members_.end(); }

    // The last that came before it with its node rank. Null: there is none.
    const Member* holder_of_rank(const Member& member) const;
    // Who may be in a round now: of the last one, then by arrival.
    std::vector<HostSize> eligible(const RankTable& last, Time now) const;
    std::size_t count_eligible(Time now) const;
    // "h1 (10.77.0.1), h2 (10.77.0.2)", by arrival; those without workers are left out.
    std::string list() const;

private:
    bool is_eligible(const Member& member, Time now) const;

    std::map<MemberId, Member> members_;
    std::uint64_t arrivals_ = 0;
};

// "node rank 1 of h3 is h2's already; ..."
std::string rank_is_taken(const HostSize& size, const std::string& holder);

}  // namespace ddp::launcher
