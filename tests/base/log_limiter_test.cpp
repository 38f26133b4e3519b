// How many lines a second, and what is said of those left out.
#include "base/log_limiter.hpp"

#include <gtest/gtest.h>

namespace ddp::base {
namespace {

using namespace std::chrono_literals;

class LogLimiterTest : public testing::Test {
protected:
    LogLimiter limiter;
    LogLimiter::Clock::time_point start = LogLimiter::Clock::now();
};

TEST_F(LogLimiterTest, WritesTheFirstLineAtOnceAndCountsTheOthersOfThatSecond) {
    EXPECT_EQ(limiter.admit("a", start), "a");
    EXPECT_EQ(limiter.wakes_at(), std::nullopt);
    EXPECT_EQ(limiter.admit("b", start + 1ms), std::nullopt);
    EXPECT_EQ(limiter.admit("c", start + 999ms), std::nullopt);
    EXPECT_EQ(limiter.wakes_at(), start + 1s);
    EXPECT_EQ(limiter.admit("d", start + 1s), "d (and 2 more in the last second)");
    EXPECT_EQ(limiter.admit("e", start + 2s), "e");
}

TEST_F(LogLimiterTest, SaysTheLastOneWhenNoneFollows) {
    limiter.admit("first", start);
    EXPECT_EQ(limiter.overdue(start + 2s), std::nullopt);
    for (int i = 0; i < 3000; ++i) limiter.admit("line " + std::to_string(i), start + 10ms);
    EXPECT_EQ(limiter.overdue(start + 999ms), std::nullopt);
    EXPECT_EQ(limiter.overdue(start + 1s), "line 2999 (and 2,999 more in the last second)");
    EXPECT_EQ(limiter.overdue(start + 3s), std::nullopt);
    EXPECT_EQ(limiter.admit("next", start + 1500ms), std::nullopt);  // overdue() was a line, too
}

TEST_F(LogLimiterTest, AHundredThousandLinesInASecondBecomeTwo) {
    int written = 0;
    for (int i = 0; i < 100'000; ++i) {
        const auto now = start + std::chrono::microseconds{10 * i};
        written += limiter.admit("x", now).has_value() ? 1 : 0;
        written += limiter.overdue(now).has_value() ? 1 : 0;
    }
    EXPECT_LE(written, 2);
}

}  // namespace
}  // namespace ddp::base
