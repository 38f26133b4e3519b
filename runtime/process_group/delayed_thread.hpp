// A thread that does a queue's work when no caller does: it wakes a moment after it was armed. A
// caller that waits at once has done the work by then, and has paid neither for waking a thread nor
// for sharing its core with one. While callers keep doing the work, it wakes more and more seldom.
#pragma once

#include "base/unique_fd.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace ddp::process_group {

class DelayedThread {
public:
    // `work` runs on the thread each time it wakes, and says whether there was any. Throws
    // SystemError.
    explicit DelayedThread(std::function<bool()> work);
    ~DelayedThread();  // stop()
    DelayedThread(const DelayedThread&) = delete;
    DelayedThread& operator=(const DelayedThread&) = delete;

    // Lets it wake after `delay`, or up to 16 times that if it has lately woken for nothing. Does
    // nothing when it is armed already; a system call otherwise. Any thread.
    void arm(std::chrono::nanoseconds delay) noexcept {
        Armed before = armed_.load(std::memory_order_acquire);
        if (before != Armed::no) return;
        if (!armed_.compare_exchange_strong(before, Armed::later)) return;
        set_timer(delay * backoff_.load());
        if (armed_.load() == Armed::soon) {  // which may have come between
            set_timer(delay * soon_backoff_.load());
        }
    }
    // Likewise, for what is too much to be put off because of what arm() was called for: of its
    // wakings for nothing only those after arm_soon() count. Costs a system call also when the
    // thread was to wake some time.
    void arm_soon(std::chrono::nanoseconds delay) noexcept {
        if (armed_.load(std::memory_order_acquire) == Armed::soon) return;
        if (armed_.exchange(Armed::soon) != Armed::soon) set_timer(delay * soon_backoff_.load());
    }
    // After the work at hand, if any. Not from `work`.
    void stop() noexcept;

private:
    void set_timer(std::chrono::nanoseconds delay) noexcept;
    void loop() noexcept;

    std::function<bool()> work_;
    base::UniqueFd timer_;
    enum class Armed : std::uint8_t { no, later, soon };
    std::atomic<Armed> armed_{Armed::no};
    std::atomic<bool> stopping_{false};
    std::atomic<int> backoff_{1};
    std::atomic<int> soon_backoff_{1};
    std::thread thread_;
};

}  // namespace ddp::process_group
