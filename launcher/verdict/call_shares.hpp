// CallShares: how much of its time each rank spends in collectives, stretch by stretch. A rank that
// others wait for spends less in them than they do. Pure.
#pragma once

#include "launcher/verdict/rank_pace.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

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

    // What has been seen of a host's ranks, some times a second; of calls that began before
    // `resumed` nothing is known. Of calls with a root nothing is told, as not all wait in them for
    // all, nor of ranks on GPUs, which the host is ahead of. While ranks are in transfers or at a
    // checkpoint nothing counts.
    void note(Time now, std::span<const RankState> ranks, Time resumed);
    // Of a stretch that has come to its end; another begins. The longest call of each rank is left
    // out, and what it computed for longest: that rank 0 evaluates once makes it not slow.
    std::optional<Paces> take_paces(Time now, std::span<const RankState> ranks);

private:
    // Of a rank, of all of its groups.
    struct Account {
        std::uint64_t seen = 0;               // serial of the last call that has ended
        std::optional<Time> last_ended = {};  // it has; nothing: it does not count
        Duration recorded{};
        Duration in_calls{};
        Duration longest_call{};
        Duration longest_computed{};  // between two of them
        int calls = 0;

        void add(const contract::OperationRecord& operation, Time resumed);
        void clear();
    };

    Time begun_{};
    std::map<int, Account> accounts_;  // by rank
};

}  // namespace ddp::launcher
