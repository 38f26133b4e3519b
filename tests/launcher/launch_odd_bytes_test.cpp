// Workers that write nonsense where the launcher reads: it still reports the job's true end.
#include "launcher/launch_fixture.hpp"
#include "launcher/pseudo_terminal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LaunchOddBytes : public LaunchTest {};

TEST_F(LaunchOddBytes, AWorkerThatWritesAllOverTheControlPagesHasItsOwnEnd) {
    PseudoTerminal terminal;
    Launch job(folder_, plain({"-n2"}, {"scribble"}),
               {.environment = {"TERM=xterm"}, .terminal = terminal.theirs()});
    // The status line shows after a second, and the agent has looked several times by then.
    const auto deadline = base::Deadline::after(patience);
    const auto shows = [&](const char* text) {
        return terminal.read().find(text) != std::string::npos;
    };
    while (!(shows("2/2 ranks up") && shows("ready ")) && !deadline.passed()) {
        ASSERT_EQ(job.wait(std::chrono::milliseconds{20}).exit_code, -1) << terminal.read();
    }
    const std::string& text = terminal.read();
    const std::size_t ready = text.find("ready ");
    ASSERT_NE(ready, text.npos) << text;
    ASSERT_EQ(::kill(std::stoi(text.substr(ready + 6)), SIGKILL), 0);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGKILL);
    EXPECT_THAT(terminal.read(), HasSubstr("failed: SIGKILL"));
    EXPECT_THAT(terminal.read(), Not(HasSubstr("the agent")));
}

TEST_F(LaunchOddBytes, AnErrorFileBeyondReasonChangesNoExitCode) {
    for (const char* kind : {"deep", "less_deep", "long"}) {
        const LaunchResult result =
            launch(plain({"-n2"}, {"rank=1", "write_odd_error_file", kind, "3"}));
        EXPECT_EQ(result.exit_code, 3) << kind << result.err;
        EXPECT_THAT(result.err, HasSubstr("rank 1 (local rank 1, pid ")) << kind;
        EXPECT_THAT(result.err, HasSubstr("failed: exit code 3")) << kind;
    }
}

TEST_F(LaunchOddBytes, ADeepErrorFileIsNotCopiedEither) {
    const std::string own = folder_.path() + "/own.json";
    const LaunchResult result = launch(plain({}, {"write_odd_error_file", "less_deep", "3"}),
                                       {.environment = {"TORCHELASTIC_ERROR_FILE=" + own}});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(::unlink(own.c_str()), 0) << "it was written";
}

// A text of 1 MiB from each of 12 is more than a frame between agent and front may hold.
TEST_F(LaunchOddBytes, LongErrorsOfManyHeldWorkersDoNotEndTheJob) {
    constexpr int workers = 12;
    Launch job(folder_, plain({"--break-on-failure", "-n" + std::to_string(workers)},
                              {"hold_with_error", "1000000"}));
    ASSERT_TRUE(job.wait_for_output("ready ", workers));
    ASSERT_TRUE(job.wait_for_error(" is held for a debugger"));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err.substr(0, 2000);
    EXPECT_THAT(result.err, HasSubstr("stopped by SIGTERM"));
    EXPECT_LT(result.err.size(), 40'000U);
}

TEST_F(LaunchOddBytes, ExitCode82WithoutAPeerIsAFailureAsAnyOther) {
    const LaunchResult result = launch(
        {"-n2", "bash", "-c",
         "if [ $RANK = 0 ]; then exit 82; fi; trap 'exit 9' TERM; while :; do sleep 0.01; done"});
    EXPECT_EQ(result.exit_code, 82);
    EXPECT_THAT(result.err, HasSubstr("rank 0 (local rank 0, pid "));
    EXPECT_THAT(result.err, Not(HasSubstr("because of rank")));
}

TEST_F(LaunchOddBytes, APeerThatTheWorldDoesNotHaveIsNone) {
    const LaunchResult result =
        launch(plain({"-n2"}, {"rank=0", "write_error_file", "82", "text", "\"peer\": 7"}));
    EXPECT_EQ(result.exit_code, 82);
    EXPECT_THAT(result.err, HasSubstr("rank 0 (local rank 0"));
    EXPECT_THAT(result.err, HasSubstr("failed: exit code 82"));
}

TEST_F(LaunchOddBytes, AStrangersFolderInAFolderOfAllIsRefused) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder to another user";
    const TemporaryFolder folder;
    ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
    const std::string theirs = folder.path() + "/theirs";
    ASSERT_EQ(::mkdir(theirs.c_str(), 0777), 0);
    ASSERT_EQ(::chown(theirs.c_str(), 65534, 65534), 0);
    const LaunchResult logs = launch({"--log-dir", theirs, "bash", "-c", "echo started"});
    EXPECT_EQ(logs.exit_code, 1);
    EXPECT_EQ(logs.out, "");
    EXPECT_THAT(logs.err, HasSubstr("uid 65534"));
    EXPECT_THAT(logs.err, HasSubstr("--log-dir"));
    EXPECT_EQ(lines_of(logs.err).size(), 1U) << logs.err;
    const LaunchResult errors =
        launch({"bash", "-c", "echo started"}, {.environment = {"TMPDIR=" + theirs}});
    EXPECT_EQ(errors.exit_code, 1);
    EXPECT_EQ(errors.out, "");
    EXPECT_THAT(errors.err, HasSubstr("TMPDIR"));
    // Where only its owner may write, it is for him to decide.
    ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
    EXPECT_EQ(launch({"bash", "-c", "true"}, {.environment = {"TMPDIR=" + theirs}}).exit_code, 0);
}

TEST_F(LaunchOddBytes, AStepOfSeveralTasksIsOneLineAndExitCodeTwo) {
    const LaunchResult result =
        launch({"-n2", "bash", "-c", "echo started"},
               {.environment = {"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2"}});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--standalone"));
}

}  // namespace
}  // namespace ddp::launcher::testing
