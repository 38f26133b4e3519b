// Watchdog: gives Gloo's waits an end. By themselves they end by completion, by an error of their
// own connection, or by a timeout that closes all connections at once. Invariant: while a thread
// waits, the watchdog looks every 20 ms for a passed deadline and for trouble elsewhere, and
// interrupts the wait.
#pragma once

#include "backends/backend.hpp"
#include "base/deadline.hpp"

#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace ddp::gloo {

using backends::Direction;

class Watchdog {
public:
    // `has_trouble` is called on the watchdog's thread. Throws SystemError.
    explicit Watchdog(std::function<bool()> has_trouble);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // Blocks until the buffer's operation is done: true. False when it was interrupted: the
    // deadline (null: none) has passed, or there is trouble. Throws gloo::Exception. Any thread.
    bool wait(::gloo::transport::UnboundBuffer& buffer, Direction direction,
              const base::Deadline* deadline);

private:
    struct Wait {
        ::gloo::transport::UnboundBuffer& buffer;
        Direction direction;
        const base::Deadline* deadline;
    };
    void run();

    std::function<bool()> has_trouble_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Wait> waits_;
    bool asleep_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace ddp::gloo
