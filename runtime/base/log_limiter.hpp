// LogLimiter: at most one line a second about things that strangers can cause as often as they
// like. Those left out are counted. Pure: the time is handed in.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace ddp::base {

class LogLimiter {
public:
    using Clock = std::chrono::steady_clock;

    // What to write now, if anything: `line`, with the count of those left out before it.
    std::optional<std::string> admit(std::string line, Clock::time_point now);
    // What to write although no line came: the last one that was left out, once its second is over.
    std::optional<std::string> overdue(Clock::time_point now);
    // When overdue() has something to say.
    std::optional<Clock::time_point> wakes_at() const;

private:
    Clock::time_point next_{};  // before it, lines are left out
    std::size_t left_out_ = 0;
    std::string last_;  // of those left out
};

}  // namespace ddp::base
