// Tests that fail on purpose, for testing_test: GoogleTest's own way to expect a failure replaces
// the reporter that run_ranks relies on, so the failure has to happen in a program of its own.
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

namespace {

using ddp::ProcessGroup;
using ddp::testing::run_ranks;

TEST(FailingRanks, Expect) {
    run_ranks(3, [](ProcessGroup& group) { EXPECT_NE(group.rank(), 1) << "said rank one"; });
}

TEST(FailingRanks, Assert) {
    run_ranks(2, [](ProcessGroup& group) {
        ASSERT_NE(group.rank(), 0);
        EXPECT_EQ(group.rank(), 1) << "an ASSERT did not end the body";
    });
}

}  // namespace
