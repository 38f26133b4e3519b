// WakeTimer: one timer as a descriptor, for a loop that waits for descriptors only.
#pragma once

#include <chrono>
#include <optional>

#include "base/unique_fd.hpp"

namespace ddp::store {

class WakeTimer {
public:
    using Clock = std::chrono::steady_clock;

    WakeTimer();                          // throws SystemError
    int fd() const { return fd_.get(); }  // readable when it has gone off
    // Sets it to `time`, unless it is set to an earlier one.
    void set(Clock::time_point time);
    bool is_set() const { return time_.has_value(); }
    // It has gone off.
    void acknowledge();

private:
    base::UniqueFd fd_;
    std::optional<Clock::time_point> time_;
};

}  // namespace ddp::store
