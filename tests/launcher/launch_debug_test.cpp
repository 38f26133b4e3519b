// --break-on-failure and --stdin with real workers.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

namespace ddp::launcher::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class BreakOnFailure : public LaunchTest {
protected:
    Launch::Words failing(const char* verb) const {
        return {"--nproc-per-node=2", "--break-on-failure", DDP_TEST_FAILING_WORKER, verb};
    }
    // The pid in "rank 1 (pid 123) is held", once the launcher has said it.
    static pid_t wait_until_held(Launch& job) {
        const std::string before = "ddp-launch: rank 1 (pid ";
        const auto deadline = base::Deadline::after(patience);
        std::string said;
        while (said.find(" is held") == said.npos && !deadline.passed()) {
            said = job.wait(milliseconds{20}).err;
        }
        EXPECT_THAT(said, HasSubstr(before));
        const std::size_t found = said.find(before);
        return found == said.npos ? -1 : std::stoi(said.substr(found + before.size()));
    }
};

TEST_F(BreakOnFailure, ARankThatThrowsIsHeldAndTheOthersGoOn) {
    Launch job(folder_, failing("throw"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const pid_t pid = wait_until_held(job);
    ASSERT_GT(pid, 0);
    const std::string number = std::to_string(pid);
    const LaunchResult while_held = job.wait(milliseconds{500});
    EXPECT_EQ(while_held.exit_code, -1);
    EXPECT_EQ(while_held.err, "ddp-launch: rank 1 (pid " + number +
                                  ") is held for a debugger: gdb -p " + number + "; kill -CONT " +
                                  number +
                                  " lets it die\n"
                                  "ddp-launch:   ddp::UsageError: there is no data\n");
    ASSERT_EQ(::kill(pid, SIGCONT), 0);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGABRT);
    EXPECT_THAT(result.err, HasSubstr("error    ddp::UsageError: there is no data\n"));
    EXPECT_THAT(result.err, HasSubstr("stopped  rank 0 (SIGTERM, took "));
}

TEST_F(BreakOnFailure, ARankThatAbortsIsHeldAndAStopEndsIt) {
    Launch job(folder_, failing("abort"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    ASSERT_GT(wait_until_held(job), 0);
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 130);
}

TEST_F(BreakOnFailure, ARankThatEndsByWhatAnotherDidIsNotHeld) {
    const LaunchResult result = launch(failing("blame"));
    EXPECT_EQ(result.exit_code, 82) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("is held")));
    EXPECT_THAT(result.err, HasSubstr("left     rank 0 (because of rank 1, exit code 82)"));
    EXPECT_THAT(result.err, HasSubstr("\nddp-launch:   error    rank 0: ddp::TimeoutError: "));
    EXPECT_EQ(result.err.find("terminate called"), result.err.npos) << result.err;
}

TEST_F(BreakOnFailure, AStopFromElsewhereIsNoFailure) {
    Launch job(folder_, plain({"--break-on-failure"}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready "));
    const pid_t worker = std::stoi(job.out().substr(job.out().find(' ')));
    ASSERT_EQ(::kill(worker, SIGSTOP), 0);
    EXPECT_THAT(job.wait(milliseconds{300}).err, Not(HasSubstr("is held")));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(BreakOnFailure, WithoutItNobodyIsHeld) {
    const LaunchResult result = launch({"--nproc-per-node=2", DDP_TEST_FAILING_WORKER, "throw"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, Not(HasSubstr("is held")));
}

class LaunchStdin : public LaunchTest {
protected:
    // A launcher whose input is a pipe, inside another one.
    LaunchResult feed(const std::string& options, const std::string& worker) {
        return launch({"bash", "-c",
                       "printf 'one\\ntwo\\n' | " + std::string(DDP_LAUNCH) + " " + options +
                           " bash -c '" + worker + "'"});
    }
};

TEST_F(LaunchStdin, GoesToTheRankThatIsNamedAndToNoOther) {
    const LaunchResult result = feed("--nproc-per-node=3 --stdin=1", "echo $RANK $(wc -l) | cat");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> lines = lines_of(result.out);
    std::sort(lines.begin(), lines.end());
    EXPECT_EQ(lines, (std::vector<std::string>{"0 0", "1 2", "2 0"}));
}

TEST_F(LaunchStdin, IsASingleWorkersAndNobodysOfSeveral) {
    EXPECT_EQ(feed("", "wc -l").out, "2\n");
    EXPECT_EQ(feed("--stdin=none", "wc -l").out, "0\n");
    EXPECT_EQ(feed("--stdin=all", "wc -l").out, "2\n");
    EXPECT_EQ(feed("-n2", "wc -l").out, "0\n0\n");
}

TEST_F(LaunchStdin, OfAllIsACopyForEach) {
    for (const char* input : {"seq 1 50000 | ", "", "head -c 0 /dev/zero | "}) {
        const bool file = *input == '\0';
        const std::string command = input + std::string(DDP_LAUNCH) +
                                    " -n 3 --stdin=all bash -c 'echo $RANK $(wc -l) | cat'";
        const LaunchResult result =
            launch({"-n1", "bash", "-c",
                    file ? "seq 1 50000 > lines; " + command + " < lines; rm lines" : command});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        std::vector<std::string> lines = lines_of(result.out);
        std::sort(lines.begin(), lines.end());
        const std::string count = std::string(input).starts_with("head") ? "0" : "50000";
        EXPECT_EQ(lines, (std::vector<std::string>{"0 " + count, "1 " + count, "2 " + count}));
    }
}

TEST_F(LaunchStdin, OfAllIsEmptyWhereItIsTheNullDevice) {
    const LaunchResult result =
        launch({"bash", "-c",
                std::string(DDP_LAUNCH) + " -n 2 --stdin=all bash -c 'echo $(wc -c)' < /dev/null"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "0\n0\n");
}

// One that never reads, one that closes its input, one that takes all.
TEST_F(LaunchStdin, OfAllComesToTheOneThatReads) {
    const LaunchResult result =
        launch({"bash", "-c",
                "seq 1 60000 | " + std::string(DDP_LAUNCH) +
                    " -n 3 --stdin=all bash -c 'case $RANK in 0) wc -l;; 1) exec <&-; sleep 0.01;; "
                    "2) sleep 0.01;; esac'"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "60000\n");
}

}  // namespace
}  // namespace ddp::launcher::testing
