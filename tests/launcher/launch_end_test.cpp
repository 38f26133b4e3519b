// How a job ends: the exit code, and the report that names the rank whose fault it was.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;

class LaunchEnd : public LaunchTest {};

TEST_F(LaunchEnd, SuccessIsQuiet) {
    const LaunchResult result = launch(plain({"--nproc-per-node=4"}, {"exit_with", "0"}));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "");
}

TEST_F(LaunchEnd, AWorkerThatEndsWellEarlyDoesNotEndTheOthers) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"rank=1", "print_arguments", "over"}));
    ASSERT_TRUE(job.wait_for_output("ready"));  // rank 0
    ASSERT_TRUE(job.wait_for_output("[over]"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    const auto deadline = base::Deadline::after(patience);
    while (children_now(*agent).size() != 1 && !deadline.passed()) {
        EXPECT_EQ(job.wait(std::chrono::milliseconds{1}).exit_code, -1);
    }
    EXPECT_EQ(children_now(*agent).size(), 1U) << "rank 1 has ended, rank 0 runs";
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

TEST_F(LaunchEnd, WhoIgnoresSigtermIsKilledAfterTheGrace) {
    Launch job(folder_, {"--nproc-per-node=2", "--shutdown-timeout=1", "bash", "-c",
                         "if [ $RANK = 1 ]; then exit 5; fi; trap '' TERM; while true; do sleep 9; "
                         "done"});
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_THAT(result.err, HasSubstr("stopped  rank 0 (SIGKILL, took "));
    EXPECT_GE(result.time, std::chrono::milliseconds{1000});
}

TEST_F(LaunchEnd, TheMessageOfTheErrorFileIsInTheReport) {
    const LaunchResult result =
        launch(plain({"--nproc-per-node=2"},
                     {"rank=1", "write_error_file", "1", "UsageError: there is no data"}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("\nddp-launch:   error    UsageError: there is no data\n"));
}

TEST_F(LaunchEnd, ARankThatLeftBecauseOfAPeerIsNotBlamed) {
    const TemporaryFolder flags;
    // Rank 1 dies just after rank 0 has left.
    const std::string script =
        "ulimit -c 0; cd " + flags.path() +
        "; if [ $RANK = 0 ]; then until [ -e up ]; do :; done; echo '{\"message\": {\"message\": "
        "\"gone\", \"extraInfo\": "
        "{\"peer\": 1}}}' > $TORCHELASTIC_ERROR_FILE; touch gone; exit 82; fi; "
        "touch up; until [ -e gone ]; do :; done; kill -SEGV $BASHPID";
    const LaunchResult result = launch({"--nproc-per-node=2", "bash", "-c", script});
    EXPECT_EQ(result.exit_code, 139);
    EXPECT_THAT(result.err, HasSubstr("rank 1 "));
    EXPECT_THAT(result.err, HasSubstr("failed: SIGSEGV (signal 11)"));
    EXPECT_THAT(result.err, HasSubstr("left     rank 0 (because of rank 1, exit code 82)"));
}

TEST_F(LaunchEnd, WhenAllLeftBecauseOfAPeerThatOneIsNamed) {
    const LaunchResult result =
        launch(plain({"--nproc-per-node=3", "--shutdown-timeout=1"},
                     {"write_error_file", "82", "PeerError: rank 2 is gone", "\"peer\": 2"}));
    EXPECT_EQ(result.exit_code, 82);
    EXPECT_THAT(result.err, HasSubstr("rank 2 (local rank 2, pid "));
}

TEST_F(LaunchEnd, AnErrorFileThatIsAPipeDoesNotHoldUpTheEnd) {
    const LaunchResult result =
        launch({"bash", "-c", "mkfifo \"$TORCHELASTIC_ERROR_FILE\"; exit 3"});
    EXPECT_EQ(result.exit_code, 3);
}

TEST_F(LaunchEnd, AChildLeftBehindIsKilledAndDoesNotHoldUpTheEnd) {
    const std::string cookie = "DDP_TEST_COOKIE=" + folder_.path();
    const LaunchResult result =
        launch(plain({"--nproc-per-node=2"}, {"leave_child"}), {.environment = {cookie}});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "left a child\nleft a child\n");
    EXPECT_EQ(processes_with(cookie), std::vector<pid_t>{});
}

TEST_F(LaunchEnd, ManyWorkersEndWell) {
    const LaunchResult result = launch(plain({"--nproc-per-node=32"}, {"print_env", "RANK"}));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(lines_of(result.out).size(), 32U);
}

TEST_F(LaunchEnd, ASoftDescriptorLimitDoesNotBindTheLauncherAndIsTheWorkers) {
    const LaunchResult result =
        launch({"bash", "-c", "ulimit -Sn 40; exec \"$0\" --nproc-per-node=16 bash -c 'ulimit -Sn'",
                DDP_LAUNCH});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out), std::vector<std::string>(16, "40"));
}

TEST_F(LaunchEnd, ADescriptorLimitThatIsTooLowIsSaidBeforeAnythingStarts) {
    const LaunchResult result = launch(
        {"bash", "-c", "ulimit -n 44; exec \"$0\" --nproc-per-node=8 echo started", DDP_LAUNCH});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("8 workers need 76 file descriptors in the launcher, and "
                                      "the limit is 44"));
}

TEST_F(LaunchEnd, TwoJobsAtOnceBothRun) {
    Launch first(folder_, plain({"--nproc-per-node=2"}, {"wait_forever"}));
    ASSERT_TRUE(first.wait_for_output("ready", 2));
    EXPECT_EQ(launch(plain({"--nproc-per-node=2"}, {"print_env", "MASTER_PORT"})).exit_code, 0);
    first.signal(SIGTERM);
    EXPECT_EQ(first.wait().exit_code, 143);
}

}  // namespace
}  // namespace ddp::launcher::testing
