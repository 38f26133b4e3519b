// The right of a host's workers to run: each beat that the coordinator has answered lasts for a
// while, counted from when the beat was sent. Pure: the time is handed in.
// Invariant: ends() is never later than the moment from which the coordinator may give out the next
// round, which counts from when the beat came.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace ddp::launcher {

class Lease {
public:
    using Time = std::chrono::steady_clock::time_point;
    using Milliseconds = std::chrono::milliseconds;

    // An agent that has not run for so long first asks whether it still counts as a member.
    static constexpr Milliseconds pause{1000};

    explicit Lease(Milliseconds lasts) : lasts_(lasts) {}
    // Of those that are answered from now on.
    void set_length(Milliseconds lasts) { lasts_ = lasts; }

    // A beat is sent now, with this number.
    std::uint64_t beat(Time now) {
        sent_.emplace_back(++last_number_, now);
        return last_number_;
    }
    // Until an answer comes it lasts as if a beat that is sent now were answered.
    void count_from(Time now) { began_ = now; }
    // The coordinator has answered that beat; answers come in the order of beats.
    void answered(std::uint64_t number) {
        while (!sent_.empty() && sent_.front().first <= number) {
            ends_ = sent_.front().second + lasts_;
            sent_.pop_front();
        }
    }
    // Nothing before the first answer. Past it, ranks commit no checkpoint.
    std::optional<Time> ends() const { return ends_; }
    // Whether a round may be started: what has waited in a connection may be long past.
    bool holds(Time now) const { return ends_ && now < *ends_; }
    // Whether the workers are to be killed. To be called in each turn of the agent's loop, at least
    // four times a second: after a longer pause a beat and its answer may still come, for `pause`.
    bool is_over(Time now) {
        if (last_look_ && now - *last_look_ > pause) asks_until_ = now + pause;
        last_look_ = now;
        const std::optional<Time> ends = ends_ || !began_ ? ends_ : *began_ + lasts_;
        return ends && now >= *ends && now >= asks_until_;
    }

private:
    Milliseconds lasts_;
    std::deque<std::pair<std::uint64_t, Time>> sent_;  // not yet answered
    std::uint64_t last_number_ = 0;
    std::optional<Time> began_;
    std::optional<Time> ends_;
    std::optional<Time> last_look_;
    Time asks_until_{};
};

}  // namespace ddp::launcher
