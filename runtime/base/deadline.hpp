// Deadline: the moment by which a wait must be over. Every wait in ddp takes one; passing it down
// instead of a timeout keeps a chain of calls within the first caller's time.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>

namespace ddp::base {

class Deadline {
public:
    using Clock = std::chrono::steady_clock;
    using Milliseconds = std::chrono::milliseconds;

    static Deadline after(Milliseconds timeout) { return Deadline{Clock::now(), timeout}; }
    // At a fifth of the cost: up to 10 ms later, never earlier.
    static Deadline roughly_after(Milliseconds timeout) {
        timespec now{};
        ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // of the last tick, of 10 ms at most
        const Clock::time_point tick(std::chrono::seconds(now.tv_sec) +
                                     std::chrono::nanoseconds(now.tv_nsec));
        Deadline deadline{tick, timeout};
        deadline.end_ += std::chrono::milliseconds{10};
        return deadline;
    }

    // The same in messages, but over so much later: for waits whose error would say less than that
    // of others who wait for the same.
    Deadline later(Milliseconds by) const {
        Deadline deadline = *this;
        deadline.end_ += by;
        return deadline;
    }

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
