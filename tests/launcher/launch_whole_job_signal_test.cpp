// What service managers and batch systems do (systemd, scancel): the stop signal goes to every
// process of the job, in any order. It is a stop, never a failure.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <random>

namespace ddp::launcher::testing {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchWholeJobSignal : public LaunchTest {
protected:
    // Half of the times all within a moment, half within 200 ms.
    void stop_often(int times, const Launch::Words& options) {
        const unsigned seed = std::random_device{}();
        std::printf("seed %u\n", seed);
        std::mt19937 random(seed);
        for (int i = 0; i < times && !HasFailure(); ++i) {
            SCOPED_TRACE("time " + std::to_string(i) + ", seed " + std::to_string(seed));
            stop_once(options, random, microseconds{i % 2 == 0 ? 0 : 100'000});
        }
    }

    void stop_once(Launch::Words options, std::mt19937& random, microseconds within) {
        options.insert(options.end(), {"--nproc-per-node=3"});
        Launch job(folder_, plain(options, {"wait_forever"}));
        ASSERT_TRUE(job.wait_for_output("ready", 3));
        const auto agent = job.wait_for_agent();
        ASSERT_TRUE(agent);
        std::vector<pid_t> all = children_now(*agent);
        ASSERT_EQ(all.size(), 3U);
        all.push_back(*agent);
        all.push_back(job.pid());
        std::shuffle(all.begin(), all.end(), random);
        std::vector<microseconds> moments;
        for (std::size_t n = 0; n < all.size(); ++n) {
            moments.emplace_back(
                within.count() == 0 ? 0 : static_cast<long>(random()) % within.count());
        }
        std::sort(moments.begin(), moments.end());
        microseconds now{0};
        for (std::size_t n = 0; n < all.size(); ++n) {
            const auto pause = moments[n] - now;
            const timespec time{0, pause.count() * 1000};
            ::nanosleep(&time, nullptr);
            now = moments[n];
            ::kill(all[n], SIGTERM);
        }
        const LaunchResult result = job.wait();
        EXPECT_EQ(result.exit_code, 143) << result.err;
        EXPECT_THAT(result.err, HasSubstr("stopped by SIGTERM"));
        EXPECT_THAT(result.err, Not(HasSubstr("failed")));
        EXPECT_THAT(result.err, Not(HasSubstr("restart 1")));
    }
};

TEST_F(LaunchWholeJobSignal, IsAStopInAnyOrder) { stop_often(10, {}); }

TEST_F(LaunchWholeJobSignal, StartsNoNewAttempt) { stop_often(10, {"--max-restarts=3"}); }

// A shell says it with an exit code.
TEST_F(LaunchWholeJobSignal, AShellThatWasStoppedFirstIsNoFailureEither) {
    Launch job(folder_, {"--max-restarts=3", "bash", "-c",
                         "trap 'exit 143' TERM; echo ready $$; while :; do sleep 0.01; done"});
    ASSERT_TRUE(job.wait_for_output("ready"));
    const pid_t worker = std::stoi(job.out().substr(job.out().find(' ')));
    ::kill(worker, SIGTERM);
    const auto deadline = base::Deadline::after(patience);
    while (::kill(worker, 0) == 0 && !deadline.passed()) ::usleep(1000);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_THAT(result.err, HasSubstr("stopped by SIGTERM"));
    EXPECT_THAT(result.err, Not(HasSubstr("failed")));
}

TEST_F(LaunchWholeJobSignal, OneToAWorkerAloneIsAFailure) {
    Launch job(folder_, plain({"--nproc-per-node=2", "--shutdown-timeout=0"}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    const pid_t worker = std::stoi(job.out().substr(job.out().find(' ')));
    ::kill(worker, SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_THAT(result.err, HasSubstr("failed: SIGTERM (signal 15)"));
}

// What failed before is not excused by a signal that came after it.
TEST_F(LaunchWholeJobSignal, AFailureBeforeItStaysAFailure) {
    Launch job(folder_, {"--nproc-per-node=2", "bash", "-c",
                         "echo ready $RANK $$; if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep "
                         "0.01; done; rm go; exit 7; fi; trap 'exit 143' TERM; while :; do sleep "
                         "0.01; done"});
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    std::fclose(std::fopen((folder_.path() + "/go").c_str(), "w"));
    ASSERT_TRUE(job.wait_for_error("rank 1 failed; stopping the others"));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 7) << result.err;
    EXPECT_THAT(result.err, HasSubstr("failed: exit code 7"));
}

}  // namespace
}  // namespace ddp::launcher::testing
