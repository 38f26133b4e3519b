// Tests for testing_test to look at from outside. Most fail on purpose: GoogleTest's own way to
// expect a failure replaces the reporter that run_ranks relies on, so the failure has to happen in
// a program of its own.
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>

namespace {

using ddp::ProcessGroup;
using ddp::testing::made_once;
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

TEST(FailingRanks, LoseOne) {
    run_ranks(2, [](ProcessGroup& group) {
        if (group.rank() == 1) throw std::runtime_error("no weights");
        group.barrier().wait();
    });
}

TEST(FailingRanks, Hang) {
    const auto body = [](ProcessGroup& group) {
        while (group.rank() == 1) ::pause();
        group.barrier().wait();
    };
    run_ranks(2, body, {.timeout = std::chrono::seconds{2}});
}

TEST(FailingRanks, ComeAnotherWay) {
    if (std::getenv("RANK") == nullptr) run_ranks(1, [](ProcessGroup&) {});
}

TEST(GoodRanks, DieAsTheyMay) {
    std::cout << "before the call" << std::endl;
    run_ranks(2,
              [](ProcessGroup& group) {
                  if (group.rank() == 1) ::raise(SIGKILL);
                  EXPECT_THROW(group.barrier().wait(), ddp::PeerError);
                  std::cout << "in the body" << std::endl;
              },
              {.may_die = {1}});
}

// Again and again, beside a test that must run in no rank.
TEST(GoodRanks, KnowTheirCallAndWhatWasMade) {
    int calls = 0;
    for (int call = 1; call <= 3; ++call) {
        const int made =
            std::stoi(made_once([] { return std::to_string(std::random_device{}() % 1'000'000); }));
        ++calls;
        run_ranks(2, [&](ProcessGroup& group) {
            EXPECT_EQ(calls, call);
            EXPECT_EQ(group.all_reduce(made, ddp::ReduceOp::min), made);
            EXPECT_EQ(group.all_reduce(made, ddp::ReduceOp::max), made);
        });
    }
}

TEST(GoodRanks, AreNotInEveryTest) {
    EXPECT_EQ(std::getenv("RANK"), nullptr);
    if (std::getenv("RANK") != nullptr) std::cerr << "another test's rank" << std::endl;
}

}  // namespace
