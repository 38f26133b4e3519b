// DDP_LOG_LEVEL: what of the launcher's own lines each level lets through.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchLogLevel : public LaunchTest {
protected:
    static LaunchSettings at(const std::string& level) {
        return {.environment = {"DDP_LOG_LEVEL=" + level, "CUDA_VISIBLE_DEVICES="}};
    }
    // A job that is worth a notice at its start.
    static Launch::Words noticed(const std::string& command) {
        return {"--oversubscribe-gpu", "bash", "-c", command};
    }
};

constexpr const char* notice = "--oversubscribe-gpu is for tests only";

TEST_F(LaunchLogLevel, InfoIsTheDefault) {
    const LaunchResult result = launch(noticed("exit 0"));
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr(notice));
    EXPECT_EQ(launch(noticed("exit 0"), at("info")).err, result.err);
}

TEST_F(LaunchLogLevel, DebugShowsTheSteps) {
    const LaunchResult result =
        launch({"-n", "2", "--max-restarts=1", "bash", "-c",
                "[ $RANK = 0 ] || exit 3; trap '' TERM; exec sleep 1000"},
               {.environment = {"DDP_LOG_LEVEL=debug", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=0"}});
    EXPECT_EQ(result.exit_code, 3);
    const std::string line = "D [0-9:.]+ agent launcher\\] ";
    EXPECT_THAT(
        result.err,
        AllOf(ContainsRegex(line + "store serves at 127.0.0.1:[0-9]+\n"),
              ContainsRegex(line + "rank 0 \\(pid [0-9]+\\) started: [^\n]*/bash\n"),
              ContainsRegex(line + "rank 1 \\(pid [0-9]+\\) ended: exit code 3\n"),
              ContainsRegex(line + "rank 0 \\(pid [0-9]+\\) SIGKILL to its process group\n"),
              ContainsRegex(line + "restart 1 in 0 ms\n"),
              ContainsRegex(line + "done: exit code 3\n")));
}

TEST_F(LaunchLogLevel, DebugShowsSignals) {
    Launch job(folder_, {"bash", "-c", "trap '' USR1; echo ready; while :; do sleep 0.02; done"},
               at("debug"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGUSR1);
    ASSERT_TRUE(job.wait_for_error("agent launcher] SIGUSR1 is passed on to the workers\n"));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_THAT(result.err, AllOf(HasSubstr("agent launcher] asked to stop: SIGTERM\n"),
                                  HasSubstr("SIGTERM to its process group\n")));
}

TEST_F(LaunchLogLevel, HigherLevelsHideNotices) {
    for (const char* level : {"warn", "error", "off"}) {
        EXPECT_EQ(launch(noticed("exit 0"), at(level)).err, "") << level;
    }
}

// What the workers leave running is worth a warning, and no failure.
TEST_F(LaunchLogLevel, ErrorHidesWarnings) {
    const Launch::Words leaves{"bash", "-c", "sleep 1000 >/dev/null 2>&1 & exit 0"};
    EXPECT_THAT(launch(leaves, at("warn")).err, HasSubstr("left running by the workers"));
    EXPECT_EQ(launch(leaves, at("error")).err, "");
    EXPECT_EQ(launch(leaves, at("off")).err, "");
}

TEST_F(LaunchLogLevel, NoneHidesTheReportOfAFailure) {
    for (const char* level : {"info", "warn", "error", "off"}) {
        const LaunchResult result = launch(noticed("exit 7"), at(level));
        EXPECT_EQ(result.exit_code, 7) << level;
        EXPECT_THAT(result.err, AllOf(HasSubstr("rank 0 "), HasSubstr("failed: exit code 7")))
            << level;
    }
    EXPECT_THAT(launch({"--nproc=0", "x"}, at("off")).err, HasSubstr("--nproc-per-node"));
    EXPECT_THAT(launch({"./nowhere"}, at("off")).err, HasSubstr("not found"));
}

// Or the job would hang in silence.
TEST_F(LaunchLogLevel, NoneHidesThatAWorkerIsHeldForADebugger) {
    Launch job(folder_, {"-n", "2", "--break-on-failure", DDP_TEST_FAILING_WORKER, "throw"},
               at("off"));
    EXPECT_TRUE(job.wait_for_error("is held for a debugger"));
    job.signal(SIGINT);
    job.wait();
}

}  // namespace
}  // namespace ddp::launcher::testing
