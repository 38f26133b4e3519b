// Signals as readable events: blocked for the whole process and read from a descriptor, so that no
// handler ever runs and a loop sees them in its turn. Used by front and agent; a worker gets
// everything back as it is for a fresh program.
#pragma once

#include "base/unique_fd.hpp"

#include <csignal>
#include <initializer_list>
#include <optional>
#include <span>

namespace ddp::launcher {

// The signals that ask a job to stop.
constexpr bool is_stop_signal(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

class SignalReader {
public:
    // Blocks the signals from now on, but for those that are ignored: they stay so (blocked, they
    // would come through). Throws SystemError.
    explicit SignalReader(std::span<const int> signals);
    SignalReader(std::initializer_list<int> signals)
        : SignalReader(std::span(signals.begin(), signals.size())) {}
    int fd() const { return fd_.get(); }
    std::optional<int> next();  // nothing when no signal is waiting

private:
    base::UniqueFd fd_;
};

// What front and agent want: no death by SIGPIPE or SIGXFSZ, children that can be waited for, and
// signals that work whatever the caller ignores, a shell's `&` for example: those that are to stop
// the job, and those that are passed on. A SIGHUP that the caller ignores stays ignored: that is
// what nohup asks for.
void prepare_signals(std::span<const int> stop_signals);

// Those that this process ignores.
sigset_t ignored_signals();

// In a child that is about to execute: default actions, nothing blocked. The exec itself resets
// handlers, so that only what was ignored takes a call each. Async-signal-safe.
void reset_signals(const sigset_t& ignored);

}  // namespace ddp::launcher
