// A stop that reaches every process of a job at nearly the same moment, as systemd and scancel send
// it, is a stop whoever hears it first: no failure, no restart.
#include "base/deadline.hpp"
#include "launcher/launch_fixture.hpp"
#include "support/seed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <random>
#include <regex>

namespace ddp::security_test {
namespace {

using launcher::testing::children_now;
using launcher::testing::Launch;
using launcher::testing::LaunchResult;
using launcher::testing::LaunchTest;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

// From the first signal to the last.
constexpr milliseconds longest{200};

class StopSignals : public LaunchTest {
protected:
    static constexpr int ranks = 2;

    void stop_often(int times) {
        const unsigned seed = store_test::random_seed();
        std::mt19937 random(seed);
        int judged = 0;
        // A machine that takes longer over the signals than they may take: that one counts not.
        for (int i = 0; judged < times && i < 3 * times && !HasFailure(); ++i) {
            judged += stop_once(random, judged % 2 == 1, judged % 4 < 2) ? 1 : 0;
        }
        EXPECT_EQ(judged, times);
    }

    // Returns whether the signals came as quickly as they should.
    bool stop_once(std::mt19937& random, bool restarts, bool group) {
        Launch::Words words{DDP_LAUNCH, "--nproc-per-node=" + std::to_string(ranks)};
        if (restarts) words.emplace_back("--max-restarts=3");
        words.insert(words.end(), {DDP_TEST_WORKER, "wait_forever"});
        // In a session of its own, whose process group is not the test's.
        Launch job(folder_, words, {.program = "/usr/bin/setsid"});
        EXPECT_TRUE(job.wait_for_output("ready", ranks)) << job.wait().err;
        const auto agent = job.wait_for_agent();
        if (!agent || HasFailure()) return false;

        std::vector<pid_t> targets = children_now(*agent);
        targets.push_back(*agent);
        targets.push_back(group ? -job.pid() : job.pid());
        std::shuffle(targets.begin(), targets.end(), random);
        const auto sent = send_to(targets, random);
        const LaunchResult result = job.wait();
        if (sent.took > longest) return false;
        SCOPED_TRACE(sent.story + (restarts ? " with restarts" : "") + " front " +
                     std::to_string(job.pid()) + " agent " + std::to_string(*agent));
        EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
        EXPECT_THAT(result.err, HasSubstr("stopped by SIGTERM"));
        EXPECT_THAT(result.err, Not(HasSubstr("failed")));
        EXPECT_THAT(result.err, Not(HasSubstr("restart")));
        return true;
    }

    struct Sent {
        microseconds took;
        std::string story;
    };
    static Sent send_to(const std::vector<pid_t>& targets, std::mt19937& random) {
        const auto begin = base::Deadline::Clock::now();
        std::string story = "TERM";
        for (std::size_t i = 0; i < targets.size(); ++i) {
            if (i > 0) {
                // Each third pause is a long one.
                const long most_us = random() % 3 == 0 ? 60'000 : 3'000;
                const timespec pause{0, static_cast<long>(random()) % most_us * 1000};
                ::nanosleep(&pause, nullptr);
            }
            ::kill(targets[i], SIGTERM);  // who has gone already needs none
            const auto at =
                std::chrono::duration_cast<microseconds>(base::Deadline::Clock::now() - begin);
            story +=
                " to " + std::to_string(targets[i]) + " at " + std::to_string(at.count()) + " us";
        }
        return {std::chrono::duration_cast<microseconds>(base::Deadline::Clock::now() - begin),
                story};
    }
};

TEST_F(StopSignals, ToEverybodyInAnyOrderStopTheJob) { stop_often(20); }

TEST_F(StopSignals, SoakToEverybodyInAnyOrderStopTheJobFiveHundredTimes) { stop_often(500); }

}  // namespace
}  // namespace ddp::security_test
