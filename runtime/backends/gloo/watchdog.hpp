// Gloo's waits end by completion, by an error of their own connection, or by a timeout that closes
// all connections at once. The watch adds what is missing: it looks every 20 ms, while somebody
// waits, for deadlines and for trouble elsewhere, and interrupts the waits.
#pragma once

#include "base/deadline.hpp"

#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace ddp::gloo {

enum class Way { send, receive };

class Watch {
public:
    // `is_trouble` is called on the watch's thread. Throws SystemError.
    explicit Watch(std::function<bool()> is_trouble);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Blocks until the buffer's operation is done: true. False when it was interrupted: the
    // deadline (null: none) has passed, or there is trouble. Throws gloo::Exception. Any thread.
    bool wait(::gloo::transport::UnboundBuffer& buffer, Way way, const base::Deadline* deadline);

private:
    struct Wait {
        ::gloo::transport::UnboundBuffer& buffer;
        Way way;
        const base::Deadline* deadline;
    };
    void run();

    std::function<bool()> is_trouble_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Wait> waits_;
    bool asleep_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace ddp::gloo
