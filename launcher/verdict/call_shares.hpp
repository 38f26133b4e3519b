// CallShares: how much of its time each rank of a group spends in the group's collectives, stretch
// by stretch. A rank that others wait for spends less in them than they do. Pure.
#pragma once

#include "launcher/verdict/rank_state.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ddp::launcher {

class CallShares {
public:
    using Time = RankState::Time;
    using Duration = std::chrono::nanoseconds;
    // A stretch has so much at least, and of each rank so much that is recorded, as times are no
    // finer than the kernel's ticks; and so many calls, as a rank's steps take now more, now less.
    static constexpr Duration least_time = std::chrono::seconds{2};
    static constexpr Duration least_recorded = std::chrono::milliseconds{500};
    static constexpr int least_calls = 10;

    struct Share {
        int rank = 0;
        double in_calls = 0;
    };
    struct Stretch {
        std::uint32_t group = 0;
        Duration time{};
        std::vector<Share> ranks;  // two at least; by rank
    };

    // What has been seen of a host's ranks, some times a second. Of calls with a root nothing is
    // told, as not all wait in them for all; nor of GPUs, which the host is ahead of. While ranks
    // are in transfers or at a checkpoint nothing counts.
    void note(Time now, std::span<const RankState> ranks);
    // Those that have come to their end; others begin.
    std::vector<Stretch> take_stretches(Time now);

private:
    struct Member {
        std::uint64_t sequence = 0;           // of the last call that has ended
        std::optional<Time> last_ended = {};  // it has; nothing: it does not count
        Duration recorded{};
        Duration in_calls{};
        int calls = 0;
    };
    struct Group {
        Time begun{};
        std::map<int, Member> members;  // by rank
    };

    void forget_who_left(std::span<const RankState> ranks);
    static void add(const contract::OperationRecord& operation, Member& member);

    std::map<std::uint32_t, Group> groups_;
    std::map<int, std::uint64_t> seen_;  // serial of each rank's last call that has ended
};

}  // namespace ddp::launcher
