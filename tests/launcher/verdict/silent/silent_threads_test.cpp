// Real workers, which sleep; their threads are looked at in made-up time.
#include "launcher/verdict/silent/silent_threads.hpp"
#include "launcher/sleeping_worker.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::launcher::testing {
namespace {

using namespace std::chrono_literals;

class SilentThreadsTest : public ::testing::Test {
protected:
    SilentThreadsTest() {
        for (int i = 0; i < 2; ++i) workers_.push_back(start_sleeping_worker(i));
    }
    ~SilentThreadsTest() override {
        for (Worker& worker : workers_) {
            if (worker.running()) end_worker(worker);
        }
    }

    // Looks as often as is asked for, until something is told.
    std::vector<RankRuns> take() {
        for (;;) {
            const auto told = threads_.take(now_, {pages_, workers_, 4, 6});
            now_ = threads_.next().value_or(now_);
            if (told) return *told;
        }
    }
    pid_t pid(std::size_t worker) const { return workers_[worker].process.pid(); }

    SilentThreads::Time now_{1h};
    contract::ControlRegion pages_ = contract::ControlRegion::create(2);
    std::vector<Worker> workers_;
    SilentThreads threads_;
};

TEST_F(SilentThreadsTest, AreToldEachSecondWithHowOftenTheyWereSeenToWait) {
    take();
    const auto begin = now_;
    const std::vector<RankRuns> told = take();
    EXPECT_EQ(now_ - begin, SilentThreads::between_tellings);
    ASSERT_EQ(told.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(told[i].rank, 4 + static_cast<int>(i));
        EXPECT_EQ(told[i].pid, pid(i));
        EXPECT_TRUE(told[i].is_of_first);
        EXPECT_EQ(told[i].looks, 4);
        EXPECT_EQ(told[i].waits, 0) << "to sleep is to wait for nobody";
        EXPECT_GT(told[i].runs.switches, 0U);
    }
}

TEST_F(SilentThreadsTest, HaveWhatTheirProcessesHaveUsed) {
    std::vector<RankRuns> told = take();
    EXPECT_FALSE(told[0].use) << "only where it is asked for";
    told.push_back({.rank = 5, .pid = pid(1), .is_of_first = false});
    look_at_uses(told);
    for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(told[i].use);
        EXPECT_FALSE(told[i].use->processors.empty());
    }
    EXPECT_FALSE(told[2].use) << "not twice of a process";
}

TEST_F(SilentThreadsTest, OfACallAreToldAfterTheReadingThatHasFoundThem) {
    threads_.note_reading(std::vector<RankReading>{
        {.rank = 4}, {.rank = 5, .call = StackCall{.name = "all_reduce", .tid = pid(1)}}});
    std::vector<RankRuns> told = take();
    ASSERT_EQ(told.size(), 3U);
    EXPECT_EQ(told[2].rank, 5);
    EXPECT_FALSE(told[2].is_of_first);
    EXPECT_EQ(told[2].looks, 0);
    threads_.note_reading(std::vector<RankReading>{{.rank = 4}, {.rank = 5}});
    EXPECT_EQ(take().size(), 2U);
}

TEST_F(SilentThreadsTest, AreThoseOfRanksThatRun) {
    end_worker(workers_[0]);
    const std::vector<RankRuns> told = take();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].rank, 5);
}

TEST_F(SilentThreadsTest, AreLookedAtNoMoreAfterTheEnd) {
    take();
    threads_.end();
    EXPECT_EQ(threads_.next(), SilentThreads::Time::max());
    EXPECT_FALSE(threads_.take(now_ + 1h, {pages_, workers_, 4, 6}));
}

TEST(MayWaitForOthers, IsWhereAThreadWaitsForAThreadOrASocket) {
    for (const char* const call : {"futex", "poll", "epoll_wait", "recvfrom of a socket"}) {
        EXPECT_TRUE(may_wait_for_others(call)) << call;
    }
    for (const char* const call : {"", "clock_nanosleep", "read of /data/x", "wait4", "recvfrom"}) {
        EXPECT_FALSE(may_wait_for_others(call)) << call;
    }
}

}  // namespace
}  // namespace ddp::launcher::testing
