// ddp::launch() of a function, in programs that run themselves anew.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace {

using namespace ddp::launcher::testing;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

// Starts the program in a folder of its own, as ddp-launch's tests start theirs.
struct Host : Launch {
    Host(const TemporaryFolder& folder, const Words& words, Words environment = {})
        : Launch(folder, words,
                 {.environment = std::move(environment), .program = DDP_LAUNCHING_HOST}) {}
};

class LaunchFunction : public ::testing::Test {
protected:
    LaunchResult run(const Words& words) {
        const LaunchResult result = Host(folder_, words).wait();
        EXPECT_EQ(folder_.names(), std::vector<std::string>{});
        return result;
    }
    TemporaryFolder folder_;
};

TEST_F(LaunchFunction, RunsTheFunctionOnEachRankWithTheSameArguments) {
    for (const std::string word : {"two words $$", "${local_rank} $$", ""}) {
        const auto result = run({"sum", word});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_THAT(lines_of(result.out),
                    UnorderedElementsAre("rank 0 sum 3 word " + word, "rank 1 sum 3 word " + word,
                                         "rank 2 sum 3 word " + word, "exit code 0, report: "));
    }
}

TEST_F(LaunchFunction, ReportsTheExceptionOfTheRankToBlame) {
    const auto result = run({"throws"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, HasSubstr("exit code 1, report: rank 1"));
    EXPECT_THAT(result.out, HasSubstr("std::runtime_error: no such data"));
}

TEST_F(LaunchFunction, ReportsASignal) {
    const auto result = run({"dies_in_body"});
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.out, HasSubstr("SIGKILL (signal 9)"));
}

TEST_F(LaunchFunction, StartsAgainAfterAFailure) {
    const auto result = run({"restarts"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "attempt 0\nattempt 1\nexit code 0, report: \n");
}

TEST_F(LaunchFunction, OfAProgramWithSeveralRunsEachOnce) {
    const auto result = run({"several"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("first", "between", "second", "third",
                                                           "exit code 0, report: "));
}

TEST_F(LaunchFunction, AWorkerThatComesToAnotherCallSaysSo) {
    const auto result = run({"other_way"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, HasSubstr("this worker came to launch() number 1 at "));
    EXPECT_THAT(result.out, Not(HasSubstr("body")));
}

TEST_F(LaunchFunction, AWorkerThatNeverComesToItsCallFails) {
    const auto result = run({"never_comes"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, HasSubstr("this worker ended before it came to launch() number 1 at "));
}

TEST_F(LaunchFunction, InsideAFunctionOnlyCommandsAreLaunched) {
    const auto result = run({"nested"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("a function inside the function of another launch()"));
    EXPECT_THAT(result.out, HasSubstr("command 5\n"));
    EXPECT_THAT(result.out, Not(HasSubstr("never")));
}

TEST_F(LaunchFunction, WorksOffTheMainThreadBesideOthers) {
    const auto result = run({"threads"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(lines_of(result.out),
                UnorderedElementsAre("rank 0", "rank 1", "exit code 0, report: "));
}

TEST_F(LaunchFunction, KnowsTheResultWhenTheProgramReapsAllItsChildren) {
    for (const char* how : {"handled", "ignored"}) {
        const auto result = run({"reaped_by_others", how});
        EXPECT_EQ(result.exit_code, 1) << how;
        EXPECT_THAT(result.out, HasSubstr("std::runtime_error: on purpose")) << how;
    }
}

TEST_F(LaunchFunction, NobodyOutlivesAKilledProgram) {
    const std::string cookie = "DDP_TEST_COOKIE=" + folder_.path();
    Host host(folder_, {"waits"}, {cookie});
    ASSERT_TRUE(host.wait_for_output("ready", 4));
    ASSERT_GE(processes_with(cookie).size(), 7U);  // program, front, agent, two and two workers
    host.signal(SIGKILL);
    const auto deadline = ddp::base::Deadline::after(patience);
    while (!processes_with(cookie).empty() && !deadline.passed()) ::poll(nullptr, 0, 2);
    EXPECT_TRUE(processes_with(cookie).empty());
    EXPECT_THAT(host.wait().err, HasSubstr("the program that launched this job has ended"));
    EXPECT_EQ(folder_.names(), std::vector<std::string>{});
}

// A Ctrl-C at the terminal goes to the whole group and ends the program; its workers still get
// their time.
TEST_F(LaunchFunction, WorkersMayTidyUpAfterACtrlCThatEndedTheProgram) {
    const std::string cookie = "DDP_TEST_COOKIE=" + folder_.path();
    Host host(folder_, {"tidies_up"}, {cookie});
    ASSERT_TRUE(host.wait_for_output("ready", 2));
    ASSERT_EQ(::kill(-host.pid(), SIGINT), 0);
    EXPECT_TRUE(host.wait_for_output("tidied up", 2));
    EXPECT_EQ(host.wait().exit_code, 128 + SIGINT);
    const auto deadline = ddp::base::Deadline::after(patience);
    while (!processes_with(cookie).empty() && !deadline.passed()) ::poll(nullptr, 0, 2);
    EXPECT_TRUE(processes_with(cookie).empty());
}

TEST_F(LaunchFunction, RunsTheOldFileOfAProgramThatWasReplaced) {
    const std::string copy = folder_.path() + "/program";
    std::filesystem::copy_file(DDP_LAUNCHING_HOST, copy);
    Launch host(folder_, {"replaced", copy}, {.program = copy});
    const LaunchResult result = host.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("the old one", "exit code 0, report: "));
    std::filesystem::remove(copy);
}

}  // namespace
