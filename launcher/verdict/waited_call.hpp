// What ranks wait in, read off their records: a group's earliest call that some have not come to,
// and whether they mean the same by it. For the judge.
#pragma once

#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/verdict_text.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// The ranks that have a group's entry, by group; without those groups that cannot be one, as there
// are too many of them, or they do not agree on their number.
struct Member {
    const RankState* rank;
    const contract::GroupRecord* group;
};
std::map<std::uint32_t, std::vector<Member>> groups_of(std::span<const RankState> ranks);

// In a collective or in a transfer, of any group.
bool waits(const RankState& rank);
std::vector<int> all_who_wait(std::span<const RankState> ranks);
std::vector<int> numbers_of(const RankStates& ranks);  // sorted
Verdict::Time middle_of(std::vector<Verdict::Time> times);

// A group's earliest call that is waited in, and where its ranks are.
struct WaitedCall {
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;
    bool on_gpu = false;
    bool all_are_known = false;  // its ranks: their hosts have told, and they have recorded
    const contract::OperationRecord* call = nullptr;  // as one of those who wait called it
    RankStates arrived = {};
    RankStates beyond = {};     // have been in it
    RankStates elsewhere = {};  // have not come, as they wait in other groups
    RankStates missing = {};    // have not come, and wait for nobody
    RankStates gone = {};       // never will: they have ended, or left the group, or failed
    Verdict::Time since = {};   // half of those who wait have
    Verdict::Time last_came = {};

    std::size_t members() const {
        return arrived.size() + beyond.size() + elsewhere.size() + missing.size() + gone.size();
    }
};

// Nothing where nobody waits in the group, or what they wait in is not recorded any more.
std::optional<WaitedCall> waited_call(const std::vector<Member>& members);

// What ranks have called as one and the same operation.
struct Difference {
    RankStates to_blame = {};  // who called what fewest did; of equals all
    std::string calls = {};    // a line for each call; empty: they are the same
    Verdict::Time last_started = {};
};

struct OwnCall {
    const RankState* rank;
    const contract::OperationRecord* call;
};
Difference difference_of(const std::vector<OwnCall>& calls);

}  // namespace ddp::launcher
