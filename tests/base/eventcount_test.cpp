// The eventcount with real threads; tests/explorer checks its memory orders.
#include "base/eventcount.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace ddp::base {
namespace {

constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

// A lost wake-up hangs, until ctest's time limit.
TEST(Eventcount, HandsATurnToAndFroWithoutLosingAWakeUp) {
    constexpr int turns = 20'000;
    Eventcount changed;
    std::atomic<int> turn{0};
    const auto play = [&](int me) {
        for (int next = me; next < turns; next += 2) {
            changed.await([&] { return turn.load(acquire) == next; });
            turn.store(next + 1, release);
            changed.notify_all();
        }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    EXPECT_EQ(turn, turns);
}

TEST(Eventcount, WakesAllWhoWaitOfEachRound) {
    constexpr int rounds = 2'000;
    constexpr int waiters = 4;
    Eventcount began, ended;
    std::atomic<int> round{0};
    std::atomic<int> seen{0};
    std::vector<std::thread> threads;
    for (int waiter = 0; waiter < waiters; ++waiter) {
        threads.emplace_back([&] {
            for (int next = 1; next <= rounds; ++next) {
                began.await([&] { return round.load(acquire) >= next; });
                seen.fetch_add(1, release);
                ended.notify_all();
            }
        });
    }
    for (int next = 1; next <= rounds; ++next) {
        round.store(next, release);
        began.notify_all();
        ended.await([&] { return seen.load(acquire) == next * waiters; });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(seen, rounds * waiters);
}

TEST(Eventcount, SleepsNoLongerThanItsTimeOut) {
    Eventcount changed;
    const auto begin = std::chrono::steady_clock::now();
    changed.wait(changed.prepare_wait(), std::chrono::milliseconds{5});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
    EXPECT_FALSE(changed.has_waiters());
}

TEST(Eventcount, DoesNotSleepOnceItWasNotifiedAfterPreparing) {
    Eventcount changed;
    const Eventcount::Key key = changed.prepare_wait();
    EXPECT_TRUE(changed.has_waiters());
    changed.notify_all();
    changed.wait(key);
    const Eventcount::Key other = changed.prepare_wait();
    EXPECT_NE(key, other);
    changed.cancel_wait();
    EXPECT_FALSE(changed.has_waiters());
}

// Store buffering, with real processors: each round at least one of the two must see the other.
TEST(AsymmetricFence, OneOfTwoThreadsSeesTheOther) {
    constexpr int rounds = 20'000;
    struct alignas(64) Line {
        std::atomic<int> value{0};
    };
    Line x, y, fast_saw, slow_saw, fast_done, slow_done;
    std::thread fast([&] {
        for (int round = 1; round <= rounds; ++round) {
            while (slow_done.value.load(acquire) != round - 1) std::this_thread::yield();
            x.value.store(round, std::memory_order_relaxed);
            light_fence();
            fast_saw.value.store(y.value.load(std::memory_order_relaxed));
            fast_done.value.store(round, release);
        }
    });
    int missed = 0;
    for (int round = 1; round <= rounds; ++round) {
        y.value.store(round, std::memory_order_relaxed);
        heavy_fence();
        slow_saw.value.store(x.value.load(std::memory_order_relaxed));
        while (fast_done.value.load(acquire) != round) std::this_thread::yield();
        missed += slow_saw.value != round && fast_saw.value != round;
        slow_done.value.store(round, release);
    }
    fast.join();
    EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace ddp::base
