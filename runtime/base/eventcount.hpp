// Eventcount: how a thread sleeps until a condition of atomics holds, where the thread that makes
// it hold must not pay for that unless a waiter sleeps (folly::EventCount, Vyukov's eventcount). It
// knows nothing of the condition. Invariant: no wake-up is lost, so a sleep needs no time-out.
//
//     waiter                                       notifier
//     W1  waiters += 1                             N1  store what the condition reads
//     W2  heavy fence                              N2  light fence
//     W3  key = epoch          (acquire)           N3  waiters == 0: done   (relaxed)
//     W4  the condition holds: waiters -= 1        N4  epoch += 1           (release)
//     W5  sleep if epoch == key, waiters -= 1      N5  wake all at epoch
//
// Only waiters store `waiters`, only notifiers store `epoch`. A notifier that nobody waits for
// executes N2 and N3: one load, and no instruction for the fence (base/asymmetric_fence.hpp).
//
// Why no wake-up is lost. If the condition does not hold at W4 although N1 has stored, W4 has not
// seen N1. The two fences then order W1 before N3, so the notifier goes on to N4. If W3 has read
// the epoch of N4 or a later one, its acquire makes N1 seen at W4, against the assumption. So `key`
// is older than N4: either the sleep of W5 finds another epoch and does not begin, or it had begun
// before N4 and N5 ends it. Each of these orders is needed: tests/explorer weakens them one by one.
//
// N1 must come before notify_all() in the notifier's program: a notifier that looks for waiters
// first and stores then loses those who came between (collective_queue.cpp has to, and says how).
// `waiters` counts those who are between W1 and the end, so it may be too large, never too small.
// 2^32 notifications between W3 and W5 would be taken for none.
#pragma once

#include "base/asymmetric_fence.hpp"
#include "base/futex.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace ddp::base {

// The policy of the model checker replaces these by its own (tests/explorer).
struct EventcountPolicy {
    template <class T>
    using Atomic = std::atomic<T>;
    using Timeout = std::optional<std::chrono::nanoseconds>;
    static constexpr std::memory_order load_epoch = std::memory_order_acquire;
    static constexpr std::memory_order advance_epoch = std::memory_order_release;
    static void light_fence() noexcept { base::light_fence(); }
};
// Among the threads of one process.
struct ProcessEventcountPolicy : EventcountPolicy {
    static void heavy_fence() noexcept { base::heavy_fence(); }
    static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, Timeout timeout) {
        futex_wait(word, expected, FutexScope::process, timeout);
    }
    static void wake_all(std::atomic<std::uint32_t>& word) {
        futex_wake_all(word, FutexScope::process);
    }
};

template <class Policy>
class BasicEventcount {
public:
    using Key = std::uint32_t;

    // W1 to W3. The condition must be looked at after it; then wait or cancel_wait follows.
    [[nodiscard]] Key prepare_wait() noexcept {
        waiters_.fetch_add(1, std::memory_order_relaxed);
        Policy::heavy_fence();
        return epoch_.load(Policy::load_epoch);
    }
    void cancel_wait() noexcept { waiters_.fetch_sub(1, std::memory_order_relaxed); }
    // W5: until a notification since prepare_wait, or the time-out. May return early.
    void wait(Key key, typename Policy::Timeout timeout = {}) noexcept {
        Policy::sleep(epoch_, key, timeout);
        cancel_wait();
    }
    // Until the condition holds.
    template <class Condition>
    void await(const Condition& condition) {
        while (!condition()) {
            const Key key = prepare_wait();
            if (condition()) return cancel_wait();
            wait(key);
        }
    }

    // After the store. Wakes all who wait.
    void notify_all() noexcept {
        if (has_waiters()) wake_all();
    }
    // N2 and N3, and N4 and N5, for a notifier that does something between.
    [[nodiscard]] bool has_waiters() const noexcept {
        Policy::light_fence();
        return waiters_.load(std::memory_order_relaxed) != 0;
    }
    void wake_all() noexcept {
        epoch_.fetch_add(1, Policy::advance_epoch);
        Policy::wake_all(epoch_);
    }

private:
    typename Policy::template Atomic<std::uint32_t> epoch_{0};  // the futex word
    typename Policy::template Atomic<std::uint32_t> waiters_{0};
};

using Eventcount = BasicEventcount<ProcessEventcountPolicy>;

}  // namespace ddp::base
