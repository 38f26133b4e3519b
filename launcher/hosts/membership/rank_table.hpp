// Who has which ranks in a round, over all its hosts. Pure: hosts and their sizes in, a table out.
// Invariant: the ranks of a host are contiguous, and those of all hosts together are 0 to the
// world's size - 1, each once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

// One run of one agent; an agent that comes back is another member.
using MemberId = std::uint64_t;

struct HostSize {
    MemberId member = 0;
    std::string host;                // its name; several members may have the same
    std::string address = {};        // where others reach it
    int slots = 1;                   // its workers; 0: it serves the others, and is in no round
    std::optional<int> node_rank{};  // as --node-rank asks; of two members at most one has a number
    bool is_endpoint = false;        // it serves what the others connect to
    std::uint16_t port = 0;          // at which it would serve if it took over; 0: it cannot
    std::int64_t started_ns = 0;     // since the epoch, by its own clock: breaks ties
    std::string role = "default";
    // What its agent was in before: a round whose coordinator it has lost, and its number there.
    // No worker of that lives on its host. Round 0: nothing.
    int was_in_round = 0;
    MemberId was_member = 0;
};

// "h1 (10.77.0.1)": for users.
std::string name_of(const HostSize& size);

struct HostRanks {
    MemberId member = 0;
    std::string host;
    std::string address;
    int group_rank = 0;  // its place among the hosts
    int first_rank = 0;
    int slots = 0;            // its ranks are first_rank to first_rank + slots - 1
    int first_role_rank = 0;  // the same among ranks of its role
    int role_world_size = 0;
    std::uint16_t port = 0;  // where it would serve as a successor; 0: nowhere
    bool has(int rank) const { return rank >= first_rank && rank < first_rank + slots; }
    friend bool operator==(const HostRanks&, const HostRanks&) = default;
};

struct RankTable {
    std::vector<HostRanks> hosts;  // by group rank
    int world_size = 0;

    // Null: it is not in this round.
    const HostRanks* find(MemberId member) const;
    const HostRanks* host_of(int rank) const;  // null: the job has no such rank
    // "rank 3 on host h2"
    std::string describe(int rank) const;
    // Of all hosts that have one: who is alone needs none.
    std::vector<std::string> addresses() const;
    friend bool operator==(const RankTable&, const RankTable&) = default;
};

// Digits compare as the numbers that they are, the rest byte by byte: h2 before h10.
bool is_before_in_natural_order(std::string_view a, std::string_view b);

// Of the first round: by node rank; those without one by endpoint, natural order of names, start.
// A node rank below the number of hosts is its host's place; who has a higher one, as a job that
// begins with some of its hosts missing, comes after those without, by node rank. Throws UsageError
// that names both hosts when two ask for one place, and for a node rank below 0.
RankTable make_rank_table(std::span<const HostSize> hosts);

// Of a later round: who was in `last` keeps its place among those who stay; who is new takes the
// place of one who has left (that of its node rank, else the first that is free), and then the end;
// new ones among each other as in the first round.
RankTable make_rank_table(std::span<const HostSize> hosts, const RankTable& last);

}  // namespace ddp::launcher
