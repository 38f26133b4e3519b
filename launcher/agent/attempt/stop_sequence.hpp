// How workers are stopped, as a schedule that knows no process: a pause in which they may leave by
// themselves, a signal that asks, SIGKILL after the grace, and the moment when waiting longer makes
// no sense. Pure: the time is handed in.
#pragma once

#include <chrono>
#include <optional>

namespace ddp::launcher {

class StopSequence {
public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;
    using Milliseconds = std::chrono::milliseconds;

    // From the first failure: time for the others to see the abort word, raise, dump and leave; no
    // more than the grace, as a grace of 0 asks for no delay at all.
    static constexpr Milliseconds time_to_leave{250};
    // From SIGKILL: whoever is still there after it cannot be killed.
    static constexpr Milliseconds time_to_die{5000};

    // The first of these starts the sequence. Later ones only make it faster: on_signal() sends its
    // signal at once, and neither moves an earlier SIGKILL back.
    void on_failure(Time now, Milliseconds grace);
    // A failure that may be a stop of the whole job, of which our own signal is still to come: the
    // time to leave is not cut by the grace.
    void on_likely_stop(Time now, Milliseconds grace);
    // SIGPIPE, of a job whose output nobody reads, is followed by SIGTERM after time_to_leave.
    void on_signal(int signal, Time now, Milliseconds grace);
    void kill_now(Time now);

    bool active() const { return active_; }
    // The signal to send now; call again until there is none.
    std::optional<int> due(Time now);
    // When something will be due, or the wait is over.
    std::optional<Time> next() const;
    // When whoever is left is to be killed: by the sequence, else a grace from now on.
    Time kill_time(Time now, Milliseconds grace) const;
    // SIGKILL was sent long ago.
    bool kill_timed_out(Time now) const { return kill_times_out_at_ && now >= *kill_times_out_at_; }

private:
    bool active_ = false;
    int signal_ = 0;
    std::optional<Time> signal_at_;
    std::optional<Time> kill_at_;
    std::optional<Time> kill_times_out_at_;
};

}  // namespace ddp::launcher
