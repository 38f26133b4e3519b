// Which children of the front are neither the agent nor below it: who was there before it (a shell
// that exec'ed the launcher may leave children behind), and what PID 1 inherits at any time. They
// are not the job's, and no sweep touches them.
#pragma once

#include "launcher/process/process_sweep.hpp"

#include <sys/types.h>

#include <chrono>

namespace ddp::launcher {

class StrangerWatch {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds time_between_looks{1000};

    // `possible`: whether there may be any; if not, nothing is ever looked for.
    explicit StrangerWatch(bool possible) : possible_(possible) {}

    bool possible() const { return possible_; }
    // Looks when a look is due; `agent` is not yet waited for.
    void run(Clock::time_point now, pid_t agent);
    void look_soon() { look_at_ = Clock::time_point::min(); }
    // The strangers of the last look.
    const ExcludedProcesses& found() const { return found_; }

private:
    bool possible_;
    ExcludedProcesses found_;
    Clock::time_point look_at_ = Clock::time_point::min();
};

}  // namespace ddp::launcher
