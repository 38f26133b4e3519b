#include "launcher/agent/restart_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

AttemptFailure failure(int rank, int exit_code, milliseconds lasted) {
    return {.rank = rank, .exit_code = exit_code, .lasted = lasted};
}

TEST(RestartPolicy, WithoutRestartsItSaysNothing) {
    RestartPolicy policy({});
    const auto decision = policy.decide(failure(0, 1, seconds{1}));
    EXPECT_FALSE(decision.restart);
    EXPECT_EQ(decision.text, "");
}

TEST(RestartPolicy, CountsDownAndSaysSo) {
    RestartPolicy policy({.max_restarts = 2});
    EXPECT_EQ(policy.decide(failure(0, 1, seconds{1})).text, "restart 1 of 2");
    EXPECT_EQ(policy.decide(failure(0, 1, seconds{1})).text, "restart 2 of 2");
    const auto last = policy.decide(failure(0, 1, seconds{1}));
    EXPECT_FALSE(last.restart);
    EXPECT_EQ(last.text, "no restart left (2 used)");
    EXPECT_EQ(policy.restarts(), 2);
}

TEST(RestartPolicy, ThePauseDoublesUpToItsLimit) {
    RestartPolicy policy({.max_restarts = 1000, .delay = seconds{1}});
    milliseconds expected = seconds{1};
    for (int i = 0; i < 1000; ++i) {
        const auto decision = policy.decide(failure(i, 1, seconds{1}));
        ASSERT_TRUE(decision.restart);
        ASSERT_EQ(decision.delay, expected);
        expected = std::min(expected * 2, RestartPolicy::longest_delay);
    }
}

TEST(RestartPolicy, TheSameFailureTwiceInTheWindowEndsIt) {
    RestartPolicy policy({.max_restarts = 9, .same_failure_window = seconds{10}});
    EXPECT_TRUE(policy.decide(failure(3, 1, seconds{1})).restart) << "the first time";
    const auto again = policy.decide(failure(3, 1, seconds{2}));
    EXPECT_FALSE(again.restart);
    EXPECT_THAT(again.text, HasSubstr("rank 3 failed the same way twice"));
}

TEST(RestartPolicy, AnotherRankAnotherEndOrALongerRunIsNotTheSame) {
    for (const AttemptFailure& second :
         {failure(2, 1, seconds{1}), failure(3, 139, seconds{1}), failure(3, 1, seconds{10})}) {
        RestartPolicy policy({.max_restarts = 9, .same_failure_window = seconds{10}});
        policy.decide(failure(3, 1, seconds{1}));
        EXPECT_TRUE(policy.decide(second).restart);
    }
}

}  // namespace
}  // namespace ddp::launcher
