// SilentThreads: how the threads of this host's ranks run, of programs that record nothing. Four
// times a second it is seen whose first thread waits, and each second it is told.
#pragma once

#include "launcher/verdict/rank_observer.hpp"
#include "launcher/verdict/silent/rank_reading.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// What the first thread of a rank does, as system_call_of() says: it may wait for another rank.
bool may_wait_for_others(const std::string& system_call);

// Adds what their processes have used so far to first threads.
void look_at_uses(std::vector<RankRuns>& threads);

class SilentThreads {
public:
    using Time = RankState::Time;
    static constexpr std::chrono::milliseconds between_looks{250};
    static constexpr std::chrono::seconds between_tellings{1};

    // Looks, where it is time to. Of all that run, each second; else nothing.
    std::optional<std::vector<RankRuns>> take(Time now, const WatchedWorkers& workers);
    // The stacks of all have been read: those that wait in calls are told of from now on.
    void note_reading(std::span<const RankReading> ranks);
    // Nobody is to look any more.
    void end() {
        *this = SilentThreads();
        next_look_ = Time::max();
    }
    // When to look next; nothing: it has not begun.
    std::optional<Time> next() const { return next_look_; }

private:
    struct Tally {
        int looks = 0;
        int waits = 0;
    };
    void note_waits(const WatchedWorkers& workers);
    std::vector<RankRuns> threads_of(const WatchedWorkers& workers) const;

    std::map<int, Tally> tallies_;       // by rank, since they were told
    std::map<int, pid_t> call_threads_;  // by the last reading
    std::optional<Time> next_look_;
    Time next_telling_{};
};

}  // namespace ddp::launcher
