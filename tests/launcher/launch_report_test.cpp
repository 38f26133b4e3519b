// The copies of a failure report: report.json, and the error file of a launcher that is itself a
// worker. And what stays on disk, which is nothing.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace ddp::launcher::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LaunchReport : public LaunchTest {
protected:
    // The one of that name below the folder of logs.
    json report() const {
        for (const auto& entry :
             std::filesystem::recursive_directory_iterator(kept_.path() + "/logs")) {
            if (entry.path().filename() != "report.json") continue;
            std::ifstream file(entry.path());
            return json::parse(file);
        }
        ADD_FAILURE() << "there is no report.json";
        return {};
    }
    std::string log_option() const { return "--log-dir=" + kept_.path() + "/logs"; }
    std::string error_path() const { return kept_.path() + "/error.json"; }
    json error_file() const {
        std::ifstream file(error_path());
        return json::parse(file);
    }

    TemporaryFolder kept_;
};

TEST_F(LaunchReport, IsMadeWhenTheUserStopsTheJobBeforeARestartToo) {
    Launch job(folder_,
               {"--max-restarts=5", "--restart-delay=60", log_option(), "bash", "-c", "exit 3"});
    ASSERT_TRUE(job.wait_for_error("restart 1 of 5 in"));
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 130);
    const json file = report();
    EXPECT_EQ(file["outcome"], "stopped");
    EXPECT_EQ(file["exit_code"], 130);
    EXPECT_EQ(file["root_rank"], 0);
    EXPECT_EQ(file["workers"][0]["exit_code"], 3);
}

// Relative folders are meant from where the launcher was started.
TEST_F(LaunchReport, KnowsTheErrorOfAWorkerThatWentToAnotherFolder) {
    const std::string in_root = std::string("cd /; exec ") + DDP_TEST_WORKER +
                                " write_error_file 3 'UsageError: there is no data'";
    const std::string logs =
        std::filesystem::relative(kept_.path(), folder_.path()).string() + "/logs";
    for (const std::string& option : {"--log-dir=" + logs, std::string("--max-restarts=0")}) {
        const LaunchResult result =
            launch({option, "bash", "-c", in_root}, {.environment = {"TMPDIR=."}});
        EXPECT_EQ(result.exit_code, 3);
        EXPECT_THAT(result.err, HasSubstr("error    UsageError: there is no data")) << option;
    }
}

TEST_F(LaunchReport, IsKeptForMachinesInTheLogFolder) {
    const LaunchResult result =
        launch(plain({"--nproc-per-node=2", log_option()},
                     {"rank=1", "write_error_file", "3", "UsageError: there is no data"}));
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("\nddp-launch:   report   " + kept_.path() + "/logs/"));
    const json file = report();
    EXPECT_EQ(file["outcome"], "failed");
    EXPECT_EQ(file["exit_code"], 3);
    EXPECT_EQ(file["root_rank"], 1);
    ASSERT_EQ(file["workers"].size(), 2U);
    EXPECT_EQ(file["workers"][0]["part"], "stopped");
    EXPECT_EQ(file["workers"][0]["signal"], SIGTERM);
    EXPECT_EQ(file["workers"][1]["part"], "root_cause");
    EXPECT_EQ(file["workers"][1]["error"], "UsageError: there is no data");
}

TEST_F(LaunchReport, IsKeptOfASuccessToo) {
    EXPECT_EQ(launch(plain({log_option()}, {"exit_with", "0"})).exit_code, 0);
    EXPECT_EQ(report()["outcome"], "succeeded");
}

TEST_F(LaunchReport, IsKeptOfAStopByTheUser) {
    Launch job(folder_, plain({log_option()}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 130);
    const json file = report();
    EXPECT_EQ(file["outcome"], "stopped");
    EXPECT_EQ(file["signal"], SIGINT);
    EXPECT_EQ(file["exit_code"], 130);
}

TEST_F(LaunchReport, OfTheRootCauseIsPassedOnAsAnErrorFile) {
    const LaunchResult result = launch(
        plain({"--nproc-per-node=2"},
              {"rank=1", "write_error_file", "3", "ValueError: x", R"("py_callstack": "trace")"}),
        {.environment = {"TORCHELASTIC_ERROR_FILE=" + error_path()}});
    EXPECT_EQ(result.exit_code, 3);
    const json message = error_file()["message"];
    EXPECT_EQ(message["message"], "ValueError: x");
    EXPECT_EQ(message["errorCode"], 3);
    EXPECT_EQ(message["extraInfo"]["py_callstack"], "trace");
}

TEST_F(LaunchReport, IsPassedOnOfASignalThatLeftNoErrorFile) {
    const LaunchResult result =
        launch(plain({}, {"raise_signal", "9"}),
               {.environment = {"TORCHELASTIC_ERROR_FILE=" + error_path()}});
    EXPECT_EQ(result.exit_code, 137);
    const json message = error_file()["message"];
    EXPECT_THAT(message["message"].get<std::string>(), HasSubstr("failed: SIGKILL (signal 9)"));
    EXPECT_EQ(message["errorCode"], -9);
}

TEST_F(LaunchReport, OfALauncherInALauncherNamesTheInnerRootCause) {
    const LaunchResult result =
        launch({DDP_LAUNCH, DDP_TEST_WORKER, "write_error_file", "5", "ValueError: inner"});
    EXPECT_EQ(result.exit_code, 5);
    const std::string last = result.err.substr(result.err.rfind("ddp-launch: rank 0 "));
    EXPECT_THAT(last, HasSubstr("error    ValueError: inner\n"));
}

TEST_F(LaunchReport, HasTheCallstackOfTorchsRecord) {
    const LaunchResult result = launch(plain(
        {}, {"write_error_file", "1", "ValueError: x", R"("py_callstack": "File a\nin f\n")"}));
    EXPECT_THAT(result.err, HasSubstr("trace    File a\nddp-launch:            in f\n"));
}

// "rank_0.json" lies in a folder of its own by the time a worker says so.
class ErrorFiles : public LaunchTest {
protected:
    Launch::Words writer() const {
        return {"bash", "-c",
                "echo '{\"message\": \"x\"}' > \"$TORCHELASTIC_ERROR_FILE\"; echo ready; "
                "exec sleep 99"};
    }
    void expect_nothing_left() const {
        const auto deadline = base::Deadline::after(patience);
        while (!folder_.names().empty() && !deadline.passed()) ::poll(nullptr, 0, 1);
        EXPECT_THAT(folder_.names(), IsEmpty());
    }
};

TEST_F(ErrorFiles, LieWhereNobodyElseCanLook) {
    Launch job(folder_, writer());
    ASSERT_TRUE(job.wait_for_output("ready"));
    ASSERT_EQ(folder_.names().size(), 1U);
    struct stat status {};
    ASSERT_EQ(::stat((folder_.path() + "/" + folder_.names().front()).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
    expect_nothing_left();
}

TEST_F(ErrorFiles, AreRemovedByTheAgentWhenTheFrontIsKilled) {
    Launch job(folder_, writer());
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait().exit_code, 137);
    expect_nothing_left();
}

TEST_F(ErrorFiles, AreRemovedByTheFrontWhenTheAgentIsKilled) {
    Launch job(folder_, writer());
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGKILL), 0);
    EXPECT_EQ(job.wait().exit_code, 137);
    EXPECT_THAT(folder_.names(), IsEmpty()) << "before the front ends, not later";
}

}  // namespace
}  // namespace ddp::launcher::testing
