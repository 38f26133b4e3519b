// What ends a wait at the barrier. Ranks are threads or forked processes over one region.
#include "backends/shm/wait/shm_barrier.hpp"
#include "backends/shm/wait/waiter.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp::shm;
using ddp::base::Deadline;
using ::testing::HasSubstr;

// A region in which every rank is this process, but those that a test replaces.
std::shared_ptr<SharedRegion> region_of(int ranks) {
    auto region = SharedRegion::create(ranks, make_tuning(ranks, 2, "chunk_bytes=4K"));
    for (int rank = 0; rank < ranks; ++rank) region->introduce(rank);
    return region;
}

// One rank's side: the waiter and the barrier on it.
struct Side {
    Side(SharedRegion& region, int rank, const std::atomic<std::uint32_t>* agent_abort,
         std::span<const int> job_ranks = {})
        : waiter(region, rank, agent_abort, job_ranks), barrier(region, rank, waiter) {}
    void arrive_and_wait(const Deadline& deadline, const std::string& what) {
        barrier.arrive_and_wait(deadline, [&] { return what; });
    }
    Waiter waiter;
    ShmBarrier barrier;
};

pid_t start_child(const std::function<void()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        body();
        ::_exit(0);
    }
    return pid;
}

TEST(ShmBarrier, LetsNobodyPassBeforeTheLast) {
    constexpr int ranks = 4;
    constexpr int rounds = 500;
    const auto region = region_of(ranks);
    std::atomic<int> entered{0};
    std::atomic<int> early{0};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            Side barrier(*region, rank, nullptr);
            for (int round = 1; round <= rounds; ++round) {
                entered.fetch_add(1);
                barrier.arrive_and_wait(Deadline::after(30s), "test");
                if (entered.load() < round * ranks) early.fetch_add(1);
                barrier.arrive_and_wait(Deadline::after(30s), "test");
            }
        });
    }
    threads.clear();
    EXPECT_EQ(early.load(), 0);
    EXPECT_EQ(entered.load(), ranks * rounds);
}

TEST(ShmBarrier, NamesAPeerThatWasKilled) {
    const auto region = region_of(2);
    const pid_t child = start_child([] { ::pause(); });
    region->block(1).pid.store(child);
    Side barrier(*region, 0, nullptr);
    ::kill(child, SIGKILL);
    try {
        barrier.arrive_and_wait(Deadline::after(30s), "all_reduce of 4 float32 (sum)");
        FAIL() << "passed without rank 1";
    } catch (const ddp::PeerError& error) {
        EXPECT_EQ(error.rank(), 1);
        EXPECT_THAT(error.what(), HasSubstr("rank 1 (pid " + std::to_string(child) + ")"));
        EXPECT_THAT(error.what(), HasSubstr("all_reduce of 4 float32"));
    }
    ::waitpid(child, nullptr, 0);
}

TEST(ShmBarrier, NamesAPeerThatWasGoneBeforeTheGroupWasMade) {
    const auto region = region_of(2);
    const pid_t child = start_child([] {});
    ::waitpid(child, nullptr, 0);
    region->block(1).pid.store(child);
    Side barrier(*region, 0, nullptr);
    EXPECT_THROW(barrier.arrive_and_wait(Deadline::after(30s), "test"), ddp::PeerError);
}

TEST(ShmBarrier, PassesWhenTheLastToArriveEndsAtOnce) {
    const auto region = region_of(2);
    for (int round = 0; round < 20; ++round) {
        const pid_t child = start_child(
            [&] { Side(*region, 1, nullptr).arrive_and_wait(Deadline::after(30s), "test"); });
        region->block(1).pid.store(child);
        Side barrier(*region, 0, nullptr);
        EXPECT_NO_THROW(barrier.arrive_and_wait(Deadline::after(30s), "test"));
        ::waitpid(child, nullptr, 0);
    }
}

TEST(ShmBarrier, ThrowsAtItsDeadlineAndNamesWhoIsMissing) {
    const auto region = region_of(3);
    Side barrier(*region, 0, nullptr);
    try {
        barrier.arrive_and_wait(Deadline::after(60ms), "barrier, operation 7");
        FAIL() << "passed alone";
    } catch (const ddp::TimeoutError& error) {
        EXPECT_THAT(error.what(), HasSubstr("barrier, operation 7 did not end within 60 ms"));
        EXPECT_THAT(error.what(), HasSubstr("waiting for rank 1 (pid"));
        EXPECT_THAT(error.what(), HasSubstr("rank 2 (pid"));
    }
}

TEST(ShmBarrier, EndsEveryWaitWhenOneGivesUp) {
    const auto region = region_of(3);
    std::jthread peer([&] {
        Side barrier(*region, 1, nullptr);
        EXPECT_THROW(barrier.arrive_and_wait(Deadline::after(1h), "test"), ddp::TimeoutError);
    });
    Side barrier(*region, 0, nullptr);
    EXPECT_THROW(barrier.arrive_and_wait(Deadline::after(60ms), "test"), ddp::TimeoutError);
}

TEST(ShmBarrier, EndsWhenTheAgentSaysWhoFailed) {
    const auto region = region_of(2);
    std::atomic<std::uint32_t> agent_word{0};
    Side barrier(*region, 0, &agent_word);
    std::jthread agent([&] { agent_word.store(1 + 1); });
    try {
        barrier.arrive_and_wait(Deadline::after(1h), "test");
        FAIL() << "passed alone";
    } catch (const ddp::PeerError& error) {
        EXPECT_EQ(error.rank(), 1);
    }
}

TEST(ShmBarrier, StaysFailed) {
    const auto region = region_of(2);
    Side barrier(*region, 0, nullptr);
    barrier.waiter.abort(AbortReason::peer_died, 1);
    barrier.waiter.abort(AbortReason::mismatch, 0);  // too late: the first one is what happened
    EXPECT_THROW(barrier.arrive_and_wait(Deadline::after(30s), "test"), ddp::PeerError);
    EXPECT_THROW(barrier.arrive_and_wait(Deadline::after(30s), "test"), ddp::PeerError);
}

// A barrier in two halves: what is done between arriving and waiting holds nobody up.
TEST(ShmBarrier, CanBeArrivedAtBeforeItIsWaitedFor) {
    const auto region = region_of(2);
    Side first(*region, 0, nullptr);
    Side second(*region, 1, nullptr);
    const auto deadline = Deadline::after(30s);
    const auto what = [] { return std::string("test"); };
    const std::uint32_t one = first.barrier.arrive();
    second.barrier.wait(second.barrier.arrive(), deadline, what);
    const std::uint32_t two = first.barrier.arrive();
    first.barrier.wait(one, deadline, what);
    second.barrier.wait(second.barrier.arrive(), deadline, what);
    first.barrier.wait(two, deadline, what);
}

// Who is late at a comparison of the calls is to find the difference itself, as those did that
// aborted because of it.
TEST(ShmBarrier, PassesWhereAllHaveArrivedThoughSomebodyHasAborted) {
    const auto region = region_of(2);
    Side first(*region, 0, nullptr);
    Side second(*region, 1, nullptr);
    const auto deadline = Deadline::after(30s);
    const auto what = [] { return std::string("test"); };
    const std::uint32_t phase = first.barrier.arrive();
    second.barrier.wait(second.barrier.arrive(), deadline, what);
    second.waiter.abort(AbortReason::mismatch, 1);
    EXPECT_NO_THROW(first.barrier.wait(phase, deadline, what));
    EXPECT_THROW(first.barrier.arrive_and_wait(deadline, what), ddp::UsageError);
}

TEST(ShmBarrier, NamesRanksOfTheJobInASubGroup) {
    const auto region = region_of(2);
    const std::vector<int> job_ranks{3, 5};
    Side barrier(*region, 0, nullptr, job_ranks);
    barrier.waiter.abort(AbortReason::peer_died, 1);
    try {
        barrier.arrive_and_wait(Deadline::after(30s), "test");
        FAIL() << "passed";
    } catch (const ddp::PeerError& error) {
        EXPECT_EQ(error.rank(), 5);
        EXPECT_THAT(error.what(), HasSubstr("rank 5 (pid"));
    }
}

// The agent speaks of ranks of the job, one of which may be outside the group and another one's
// number inside it.
TEST(ShmBarrier, TakesTheAgentsBlameForARankOfTheJob) {
    const std::vector<int> job_ranks{3, 0, 5};
    for (const int blamed : {0, 1, 2, 3, 4, 5, 6}) {
        const auto region = region_of(3);
        const std::atomic<std::uint32_t> agent_word{static_cast<std::uint32_t>(blamed) + 1};
        Side side(*region, 1, &agent_word, job_ranks);
        const auto found = std::find(job_ranks.begin(), job_ranks.end(), blamed);
        const std::exception_ptr trouble = side.waiter.find_trouble("test");
        ASSERT_EQ(trouble != nullptr, found != job_ranks.end()) << blamed;
        if (!trouble) continue;
        try {
            side.arrive_and_wait(Deadline::after(30s), "test");
            ADD_FAILURE() << "passed though rank " << blamed << " failed";
        } catch (const ddp::PeerError& error) {
            EXPECT_EQ(error.rank(), blamed);
            EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(blamed) + " (pid"));
        }
    }
}

// A world of its own inside a larger job: the agent may name a rank that is not here.
TEST(ShmBarrier, IgnoresAnAgentThatBlamesARankOutsideTheGroup) {
    const auto region = region_of(2);
    const std::atomic<std::uint32_t> agent_word{1 + 5};
    Side barrier(*region, 0, &agent_word);
    EXPECT_THROW(barrier.arrive_and_wait(Deadline::after(60ms), "test"), ddp::TimeoutError);
}

}  // namespace
