// Deadlines: what is left, and how times read in messages.
#include "base/deadline.hpp"

#include <gtest/gtest.h>

namespace {

using namespace std::chrono_literals;
using ddp::base::Deadline;

TEST(Deadline, IsPassedWhenNothingIsLeft) {
    const Deadline deadline = Deadline::after(0ms);
    EXPECT_TRUE(deadline.passed());
    EXPECT_EQ(deadline.left(), 0ms);
    EXPECT_EQ(deadline.poll_timeout(), 0);
}

TEST(Deadline, LeavesAtMostItsTimeout) {
    const Deadline deadline = Deadline::after(1h);
    EXPECT_FALSE(deadline.passed());
    EXPECT_LE(deadline.left(), 1h);
    EXPECT_GT(deadline.left(), 50min);
    EXPECT_EQ(deadline.poll_timeout(20ms), 20);
    EXPECT_EQ(deadline.timeout(), 1h);
}

TEST(Deadline, TakesTheLongestTimeoutWithoutOverflow) {
    EXPECT_FALSE(Deadline::after(std::chrono::milliseconds::max()).passed());
}

TEST(Deadline, IsRoughlyAfterItsTimeoutButNeverBefore) {
    const auto before = Deadline::Clock::now();
    const Deadline deadline = Deadline::roughly_after(1h);
    EXPECT_GE(deadline.end(), before + 1h);
    EXPECT_LE(deadline.end(), Deadline::Clock::now() + 1h + 10ms);
    EXPECT_LE(deadline.start(), Deadline::Clock::now());
    EXPECT_EQ(deadline.timeout(), 1h);
}

TEST(Deadline, NamesTimesForMessages) {
    EXPECT_EQ(ddp::base::to_string(250ms), "250 ms");
    EXPECT_EQ(ddp::base::to_string(1500ms), "1.5 s");
    EXPECT_EQ(ddp::base::to_string(30s), "30 s");
    EXPECT_EQ(ddp::base::to_string(10min), "10 min");
    EXPECT_EQ(ddp::base::to_string(90s), "90 s");
}

}  // namespace
