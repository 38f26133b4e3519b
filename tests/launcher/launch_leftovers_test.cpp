// What workers leave running behind them, in sessions of their own: it is asked to end before it is
// killed.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// For a process, by its /proc/PID/status.
bool is_pending(int signal, pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    std::string name;
    while (status >> name && name != "ShdPnd:") status.ignore(4096, '\n');
    unsigned long long signals = 0;
    status >> std::hex >> signals;
    return ((signals >> (signal - 1)) & 1) != 0;
}

class LaunchLeftovers : public LaunchTest {
protected:
    // A worker that ends with this code when its helper, in a session of its own, has begun.
    static Launch::Words worker(const std::string& on_term, const std::string& exit_code) {
        return {"bash", "-c",
                "setsid bash -c \"trap '" + on_term +
                    "' TERM; touch $0.begun; while :; do sleep 0.01; done\" & while [ ! -e "
                    "$0.begun ]; do sleep 0.01; done; exit " +
                    exit_code};
    }
    LaunchResult run(Launch::Words options, const std::string& on_term,
                     const std::string& exit_code = "0") {
        const Launch::Words words = worker(on_term, exit_code);
        options.insert(options.end(), words.begin(), words.end());
        options.push_back(path());
        return launch(options);
    }
    std::string path() const { return kept_.path() + "/helper"; }
    bool trapped() const { return std::filesystem::exists(path() + ".trapped"); }
    std::string trap() const { return "touch " + path() + ".trapped; exit"; }

    TemporaryFolder kept_;
};

TEST_F(LaunchLeftovers, OfASuccessAreAskedToEndAndNamed) {
    const LaunchResult result = run({}, trap());
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_TRUE(trapped());
    EXPECT_THAT(lines_of(result.err),
                ::testing::Contains(MatchesRegex("ddp-launch: left running by the workers: pid "
                                                 "[0-9]+ \\(bash\\).*; SIGTERM now, SIGKILL after "
                                                 "30 s")));
}

TEST_F(LaunchLeftovers, OfAFailureAreAskedToEnd) {
    const LaunchResult result = run({}, trap(), "3");
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(trapped());
    EXPECT_THAT(result.err, Not(HasSubstr("left running")));
}

TEST_F(LaunchLeftovers, WhoIgnoresItIsKilledAfterTheGrace) {
    const LaunchResult result = run({"--shutdown-timeout=1"}, "touch " + path() + ".trapped");
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_TRUE(trapped());
    EXPECT_THAT(result.err, HasSubstr("SIGKILL after 1 s"));
}

TEST_F(LaunchLeftovers, AGraceOfNothingKillsAtOnce) {
    const LaunchResult result = run({"--shutdown-timeout=0"}, trap());
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_FALSE(trapped());
}

TEST_F(LaunchLeftovers, AnInterruptTwiceDoesNotWaitForThem) {
    Launch::Words words = worker("", "0");
    words.insert(words.begin(), "--shutdown-timeout=1000");
    words.push_back(path());
    Launch job(folder_, words);
    ASSERT_TRUE(job.wait_for_error("left running by the workers"));
    job.signal(SIGINT);
    // Two that wait are one, and a third kills the agent.
    const auto deadline = base::Deadline::after(patience);
    while (is_pending(SIGINT, job.pid()) && !deadline.passed()) ::poll(nullptr, 0, 1);
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 130);
}

TEST_F(LaunchLeftovers, WhoEndsByItselfIsNotMentioned) {
    const LaunchResult result = launch({"bash", "-c", "setsid true & exit 0"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace ddp::launcher::testing
