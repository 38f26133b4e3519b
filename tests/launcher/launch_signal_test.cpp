// Signals to the front: forwarded, then the grace, then SIGKILL; the exit code says which it was.
#include "launcher/launch_fixture.hpp"
#include "launcher/process/exit_status.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <csignal>

namespace ddp::launcher::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchSignal : public LaunchTest {};

TEST_F(LaunchSignal, AStopSignalReachesEveryWorkerAndGivesItsExitCode) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        Launch job(folder_, plain({"--nproc-per-node=3"}, {"print_signals"}));
        ASSERT_TRUE(job.wait_for_output("ready", 3));
        job.signal(signal);
        const std::string got = "got " + std::to_string(signal) + "\n";
        EXPECT_TRUE(job.wait_for_output(got, 3)) << job.out();
        const LaunchResult result = job.wait();
        EXPECT_EQ(result.exit_code, 128 + signal);
        EXPECT_THAT(result.err, HasSubstr("ddp-launch: stopped by " + signal_name(signal)));
        EXPECT_THAT(result.err, HasSubstr("rank 0-2 (exit code 0 after "));
    }
}

TEST_F(LaunchSignal, SigquitStopsToo) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGQUIT);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGQUIT);
}

TEST_F(LaunchSignal, UserSignalsArePassedOnAndStopNothing) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGUSR1);
    EXPECT_TRUE(job.wait_for_output("got " + std::to_string(SIGUSR1) + "\n", 2));
    job.signal(SIGUSR2);
    EXPECT_TRUE(job.wait_for_output("got " + std::to_string(SIGUSR2) + "\n", 2));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(LaunchSignal, WhoIgnoresTheSignalIsKilledAfterTheGrace) {
    Launch job(folder_, plain({"--nproc-per-node=2", "--shutdown-timeout=1"},
                              {"print_signals", "stubborn"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGTERM);
    EXPECT_TRUE(job.wait_for_output("got 15\n", 2));
    EXPECT_EQ(job.wait(milliseconds{300}).exit_code, -1) << "the grace is not over";
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_THAT(result.err, HasSubstr("stopped  rank 0, 1 (SIGKILL, took "));
}

TEST_F(LaunchSignal, ASecondInterruptKillsAtOnce) {
    Launch job(folder_, plain({"--nproc-per-node=2", "--shutdown-timeout=1000"},
                              {"print_signals", "stubborn"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGINT);
    ASSERT_TRUE(job.wait_for_output("got 2\n", 2));
    job.signal(SIGINT);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_THAT(result.err, HasSubstr("stopped  rank 0, 1 (SIGKILL, took "));
}

// By a tracer: it hangs as in a call to a file system that does not answer, and SIGCONT does not
// help.
bool hold(pid_t agent) {
    return ::ptrace(PTRACE_SEIZE, agent, nullptr, nullptr) == 0 &&
           ::ptrace(PTRACE_INTERRUPT, agent, nullptr, nullptr) == 0;
}

TEST_F(LaunchSignal, AThirdInterruptDoesNotWaitForAnAgentThatHangs) {
    Launch job(folder_, plain({"--shutdown-timeout=1000"}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    if (!hold(*agent)) GTEST_SKIP() << "this host allows no ptrace of a descendant";
    LaunchResult result;
    for (int i = 0; i < 100 && result.exit_code == -1; ++i) {
        job.signal(SIGINT);
        result = job.wait(milliseconds{50});
        ::waitpid(*agent, nullptr, WNOHANG | __WALL);  // the tracer's share of its end
    }
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.err, HasSubstr("its workers were stopped"));
}

// It has 20 s from then on, and no longer the grace. Soak for its length alone.
TEST_F(LaunchSignal, SoakASecondInterruptTakesTheGraceFromAnAgentThatHangs) {
    Launch job(folder_, plain({"--shutdown-timeout=1000"}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    if (!hold(*agent)) GTEST_SKIP() << "this host allows no ptrace of a descendant";
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(milliseconds{300}).exit_code, -1) << "the front would take both for one";
    job.signal(SIGINT);
    LaunchResult result;
    for (int i = 0; i < 800 && result.exit_code == -1; ++i) {
        result = job.wait(milliseconds{50});
        ::waitpid(*agent, nullptr, WNOHANG | __WALL);  // the tracer's share of its end
    }
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.err, HasSubstr("its workers were stopped"));
}

// The promise is two seconds. Without the news of the stop itself the front would look after a
// minute.
TEST_F(LaunchSignal, AStoppedAgentIsSaidAndAnInterruptEndsTheJobAsAlways) {
    constexpr seconds promised{2};
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    const auto stopped_at = base::Deadline::Clock::now();
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    const std::string pid = std::to_string(*agent);
    ASSERT_TRUE(job.wait_for_error("the agent (pid " + pid + ") was stopped by SIGSTOP"));
    EXPECT_LT(base::Deadline::Clock::now() - stopped_at, 10 * promised);
    job.signal(SIGINT);
    EXPECT_TRUE(job.wait_for_output("got 2\n", 2));
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_THAT(result.err, HasSubstr("kill -CONT " + pid + " continues it"));
    EXPECT_THAT(result.err, HasSubstr("stopped by SIGINT"));
}

// Stopped before each of the two; the front continues it each time.
TEST_F(LaunchSignal, AStoppedAgentKillsAtTheSecondInterrupt) {
    Launch job(folder_, plain({"--shutdown-timeout=1000"}, {"print_signals", "stubborn"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    ASSERT_TRUE(job.wait_for_error("was stopped by SIGSTOP"));
    job.signal(SIGINT);
    ASSERT_TRUE(job.wait_for_output("got 2\n"));
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    job.signal(SIGINT);
    const LaunchResult result = job.wait(seconds{10});
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_THAT(result.err, HasSubstr("stopped  rank 0 (SIGKILL, took "));
}

TEST_F(LaunchSignal, AnAgentThatIsContinuedGoesOn) {
    Launch job(folder_, plain({}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    ASSERT_TRUE(job.wait_for_error("was stopped by SIGSTOP"));
    ASSERT_EQ(::kill(*agent, SIGCONT), 0);
    job.signal(SIGUSR1);
    EXPECT_TRUE(job.wait_for_output("got " + std::to_string(SIGUSR1) + "\n"));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(LaunchSignal, TheDefaultGraceComesFromTheEnvironment) {
    Launch job(folder_, plain({"--nproc-per-node=1"}, {"print_signals", "stubborn"}),
               {.environment = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=0"}});
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(seconds{20}).exit_code, 143);
}

TEST_F(LaunchSignal, AStoppedWorkerStillGetsTheSignal) {
    Launch job(folder_, plain({}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const pid_t worker = std::stoi(job.out().substr(job.out().find(' ')));
    ASSERT_EQ(::kill(worker, SIGSTOP), 0);
    job.signal(SIGTERM);
    EXPECT_TRUE(job.wait_for_output("got 15\n"));
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_THAT(result.err, HasSubstr("exit code 0 after SIGTERM"));
}

TEST_F(LaunchSignal, ASignalToTheAgentStopsTheJobToo) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGTERM), 0);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_THAT(result.err, HasSubstr("stopped by SIGTERM"));
}

TEST_F(LaunchSignal, AHangupThatNohupIgnoresStaysIgnored) {
    Launch job(folder_, plain({}, {"print_signals"}), {.ignore_hangup = true});
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGHUP);
    job.signal(SIGUSR1);  // comes after it
    ASSERT_TRUE(job.wait_for_output("got " + std::to_string(SIGUSR1)));
    EXPECT_THAT(job.out(), Not(HasSubstr("got 1\n")));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

}  // namespace
}  // namespace ddp::launcher::testing
