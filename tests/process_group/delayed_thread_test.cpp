// The thread that does what nobody else did: it wakes once armed, again when armed again, and stops
// at once whatever is going on.
#include "process_group/delayed_thread.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "process_group/comes_true.hpp"

namespace {

using namespace std::chrono_literals;
using ddp::process_group::DelayedThread;
using ddp::testing::comes_true;

TEST(DelayedThread, WakesEachTimeItIsArmed) {
    std::atomic<int> runs{0};
    DelayedThread thread([&] { return ++runs > 0; });
    for (int i = 1; i <= 100; ++i) {
        thread.arm(10us);
        ASSERT_TRUE(comes_true([&] { return runs >= i; })) << i;
    }
}

TEST(DelayedThread, WakesWithoutADelayToo) {
    std::atomic<int> runs{0};
    DelayedThread thread([&] { return ++runs > 0; });
    thread.arm(0us);
    EXPECT_TRUE(comes_true([&] { return runs == 1; }));
}

TEST(DelayedThread, WakesAfterMoreThanASecond) {
    using Clock = std::chrono::steady_clock;
    std::atomic<int> runs{0};
    DelayedThread thread([&] { return ++runs > 0; });
    const auto begin = Clock::now();
    thread.arm(1001ms);
    EXPECT_TRUE(comes_true([&] { return runs == 1; }));
    EXPECT_GE(Clock::now() - begin, 1001ms);
}

TEST(DelayedThread, RunsAgainForWhatIsAskedWhileItRuns) {
    std::atomic<int> runs{0};
    std::atomic<bool> go_on{false};
    DelayedThread thread([&] {
        ++runs;
        while (!go_on) std::this_thread::yield();
        return true;
    });
    thread.arm(1us);
    ASSERT_TRUE(comes_true([&] { return runs == 1; }));
    thread.arm(1us);
    go_on = true;
    EXPECT_TRUE(comes_true([&] { return runs == 2; }));
}

// A timer never ends early, so this fails only where the delay does not grow. It may grow a moment
// after the run that was for nothing, so the run before that counts.
void expect_later_and_later(void (DelayedThread::*arm)(std::chrono::nanoseconds) noexcept) {
    using Clock = std::chrono::steady_clock;
    std::atomic<int> runs{0};
    DelayedThread thread([&] {
        ++runs;
        return false;
    });
    auto delay = 1ms;
    for (int i = 1; i <= 6; ++i) {
        const auto start = Clock::now();
        (thread.*arm)(1ms);
        ASSERT_TRUE(comes_true([&] { return runs >= i; })) << i;
        EXPECT_GE(Clock::now() - start, delay) << i;
        if (i > 1) delay = std::min(2 * delay, 16ms);
    }
}
TEST(DelayedThread, WakesLaterAfterItHasWokenForNothing) {
    expect_later_and_later(&DelayedThread::arm);
}
TEST(DelayedThread, WakesLaterAfterItHasWokenSoonForNothing) {
    expect_later_and_later(&DelayedThread::arm_soon);
}

// Whether it still wakes soon after it was armed so as often and has woken each time, `needed` or
// not at the last two: sixteen times the delay would be longer than the test waits.
enum class Last { needed, for_nothing };
void expect_soon_after(void (DelayedThread::*arm)(std::chrono::nanoseconds) noexcept, Last last) {
    constexpr int times = 8;
    std::atomic<int> runs{0};
    DelayedThread thread([&] { return ++runs > times - 2 && last == Last::needed; });
    for (int i = 1; i <= times; ++i) {
        (thread.*arm)(1us);
        ASSERT_TRUE(comes_true([&] { return runs >= i; })) << i;
    }
    thread.arm_soon(2s);
    EXPECT_TRUE(comes_true([&] { return runs == times + 1; }));
}
TEST(DelayedThread, WakesSoonHoweverOftenItHasWokenForNothingElse) {
    expect_soon_after(&DelayedThread::arm, Last::for_nothing);
}
TEST(DelayedThread, WakesSoonAgainOnceThereWasWork) {
    expect_soon_after(&DelayedThread::arm_soon, Last::needed);
}

TEST(DelayedThread, WakesSoonForWhatCannotWait) {
    std::atomic<int> runs{0};
    DelayedThread thread([&] { return ++runs > 0; });
    thread.arm(1h);
    thread.arm_soon(1us);
    EXPECT_TRUE(comes_true([&] { return runs == 1; }));
}

// Each adds what it wants done and arms, from several threads; all of it is done in the end.
TEST(DelayedThread, MissesNothingHoweverManyArmIt) {
    std::atomic<int> wanted{0};
    std::atomic<int> done{0};
    DelayedThread thread([&] {
        const int some = wanted.exchange(0);
        done += some;
        return some > 0;
    });
    constexpr int each = 20'000;
    {
        std::vector<std::jthread> others;
        for (int i = 0; i < 3; ++i) {
            others.emplace_back([&] {
                for (int k = 0; k < each; ++k) {
                    ++wanted;
                    thread.arm(1us);
                }
            });
        }
    }
    EXPECT_TRUE(comes_true([&] { return done == 3 * each; })) << done;
}

TEST(DelayedThread, StopsWhileOthersArmIt) {
    for (int round = 0; round < 200; ++round) {
        std::atomic<int> runs{0};
        DelayedThread thread([&] { return ++runs > 0; });
        std::jthread other([&] {
            for (int i = 0; i < 20; ++i) thread.arm(1h);
            for (int i = 0; i < 20; ++i) thread.arm(1us);
        });
        if (round % 2 == 0) thread.arm(1us);
        thread.stop();
        thread.stop();
    }
}

}  // namespace
