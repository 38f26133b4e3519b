// Three moments: signal, kill, kill_timed_out. Each is there or not, and only ever moves earlier.
#include "launcher/agent/attempt/stop_sequence.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

namespace ddp::launcher {

void StopSequence::on_failure(Time now, Milliseconds grace) {
    if (std::exchange(active_, true)) return;
    signal_ = SIGTERM;
    signal_at_ = now + std::min(time_to_leave, grace);
    kill_at_ = *signal_at_ + grace;
}

void StopSequence::on_likely_stop(Time now, Milliseconds grace) {
    if (std::exchange(active_, true)) return;
    signal_ = SIGTERM;
    signal_at_ = now + time_to_leave;
    kill_at_ = *signal_at_ + grace;
}

void StopSequence::on_signal(int signal, Time now, Milliseconds grace) {
    if (kill_times_out_at_) return;  // SIGKILL is out
    signal_ = signal;
    signal_at_ = now;
    const Time kill_at = now + grace;
    kill_at_ = std::exchange(active_, true) && kill_at_ ? std::min(*kill_at_, kill_at) : kill_at;
}

void StopSequence::kill_now(Time now) {
    if (kill_times_out_at_) return;
    active_ = true;
    signal_at_.reset();
    kill_at_ = now;
}

std::optional<int> StopSequence::due(Time now) {
    if (signal_at_ && now >= *signal_at_) {
        signal_at_.reset();
        // Who ignores it, as Python does, would learn of it by writing, which need not happen.
        if (signal_ == SIGPIPE) {
            signal_ = SIGTERM;
            signal_at_ = now + time_to_leave;
            return SIGPIPE;
        }
        return signal_;
    }
    if (kill_at_ && now >= *kill_at_) {
        kill_at_.reset();
        kill_times_out_at_ = now + time_to_die;
        return SIGKILL;
    }
    return std::nullopt;
}

StopSequence::Time StopSequence::kill_time(Time now, Milliseconds grace) const {
    if (kill_times_out_at_) return now;
    return kill_at_ ? *kill_at_ : now + grace;
}

std::optional<StopSequence::Time> StopSequence::next() const {
    if (signal_at_) return signal_at_;
    return kill_at_ ? kill_at_ : kill_times_out_at_;
}

}  // namespace ddp::launcher
