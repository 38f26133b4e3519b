#include <ddp/testing.hpp>

#include <gtest/gtest.h>

TEST(SumRanks, AddsUpOverFourRanks) {
    ddp::testing::run_ranks(
        4, [](ddp::ProcessGroup& group) { EXPECT_EQ(group.all_reduce(group.rank()), 6); });
}
