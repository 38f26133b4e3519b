// When a host's workers may no longer run: counted from beats that were answered, with a second's
// patience after a pause of the agent.
#include "launcher/hosts/lease.hpp"

#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

class LeaseTest : public ::testing::Test {
protected:
    Lease::Time at(std::chrono::milliseconds time) const { return Lease::Time{} + 1h + time; }
    Lease lease_{5s};
};

TEST_F(LeaseTest, HasNoEndBeforeABeatIsAnswered) {
    lease_.beat(at(0ms));
    EXPECT_EQ(lease_.ends(), std::nullopt);
    EXPECT_FALSE(lease_.is_over(at(1min)));
}

TEST_F(LeaseTest, IsOverWhenNoBeatIsAnsweredFromWhenItCounts) {
    lease_.count_from(at(0ms));
    for (int i = 0; i < 20; ++i) {
        lease_.beat(at(i * 250ms));
        EXPECT_FALSE(lease_.is_over(at(i * 250ms)));
    }
    EXPECT_EQ(lease_.ends(), std::nullopt);
    EXPECT_TRUE(lease_.is_over(at(5s)));
}

TEST_F(LeaseTest, CountsFromWhenTheAnsweredBeatWasSent) {
    const auto first = lease_.beat(at(0ms));
    lease_.beat(at(250ms));
    const auto third = lease_.beat(at(500ms));
    lease_.answered(first);
    EXPECT_EQ(lease_.ends(), at(5'000ms));
    lease_.answered(third);
    EXPECT_EQ(lease_.ends(), at(5'500ms));
    lease_.answered(third);
    EXPECT_EQ(lease_.ends(), at(5'500ms)) << "an answer that was there already";
}

TEST_F(LeaseTest, IsOverAtItsEndWhereTheAgentRunsAllTheTime) {
    lease_.answered(lease_.beat(at(0ms)));
    for (auto time = 0ms; time < 5'000ms; time += 250ms) EXPECT_FALSE(lease_.is_over(at(time)));
    EXPECT_TRUE(lease_.is_over(at(5'000ms)));
}

TEST_F(LeaseTest, GivesAnAgentThatHasNotRunTheTimeForABeat) {
    lease_.answered(lease_.beat(at(0ms)));
    EXPECT_FALSE(lease_.is_over(at(250ms)));
    EXPECT_FALSE(lease_.is_over(at(20s)));
    const auto number = lease_.beat(at(20s));
    EXPECT_FALSE(lease_.is_over(at(20'900ms)));
    lease_.answered(number);
    EXPECT_FALSE(lease_.is_over(at(21'100ms)));
    EXPECT_EQ(lease_.ends(), at(25s));
}

TEST_F(LeaseTest, IsOverWhenThatBeatIsNotAnswered) {
    lease_.answered(lease_.beat(at(0ms)));
    EXPECT_FALSE(lease_.is_over(at(250ms)));
    EXPECT_FALSE(lease_.is_over(at(20s)));
    for (auto time = 20'000ms; time < 21'000ms; time += 250ms) {
        EXPECT_FALSE(lease_.is_over(at(time)));
    }
    EXPECT_TRUE(lease_.is_over(at(21'000ms)));
}

}  // namespace
}  // namespace ddp::launcher
