// Deadline: the moment by which a wait must be over. Every wait in ddp takes one; passing it down
// instead of a timeout keeps a chain of calls within the first caller's time.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

namespace ddp::base {

class Deadline {
public:
    using Clock = std::chrono::steady_clock;
    using Milliseconds = std::chrono::milliseconds;

    static Deadline after(Milliseconds timeout) { return Deadline{Clock::now(), timeout}; }

    Milliseconds timeout() const { return timeout_; }  // as given: for messages
    bool passed() const { return Clock::now() >= end_; }
    // What is left, at least 0, rounded up so that a poll() with it does not end early.
    Milliseconds left() const {
        return std::max(std::chrono::ceil<Milliseconds>(end_ - Clock::now()), Milliseconds{0});
    }
    // What is left as poll() wants it, at most `cap`.
    int poll_timeout(Milliseconds cap = std::chrono::hours{1}) const {
        return static_cast<int>(std::min(left(), cap).count());
    }
    Clock::time_point start() const { return start_; }
    Clock::time_point end() const { return end_; }

private:
    Deadline(Clock::time_point start, Milliseconds timeout)
        : timeout_(timeout),
          start_(start),
          // A timeout as long as the clock's range means "never"; a year is close enough.
          end_(start + std::min<Milliseconds>(timeout, std::chrono::hours{24 * 365})) {}

    Milliseconds timeout_;
    Clock::time_point start_;
    Clock::time_point end_;
};

// "30 s", "1.5 s", "250 ms": for messages.
std::string to_string(std::chrono::milliseconds);

}  // namespace ddp::base
