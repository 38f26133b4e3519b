// --flight-recorder: of jobs that hang, fail and run on.
#include "launcher/hang_drills.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/logs/content_of.hpp"
#include "launcher/timeline/flight_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp::launcher::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchFlight : public LaunchTest {
protected:
    std::string prefix() const { return kept_.path() + "/rank_"; }
    std::string option() const { return "--flight-recorder=" + prefix(); }
    json file_of(int rank) const {
        return read_flight_record(content_of(prefix() + std::to_string(rank)));
    }
    // Three ranks.
    Launch::Words drill(const Drill& drill, Launch::Words options) const {
        options.insert(options.begin(), {"--nproc_per_node=3", option()});
        for (const std::string& word : drill.command()) options.push_back(word);
        return options;
    }

    TemporaryFolder kept_;
};

TEST_F(LaunchFlight, IsWrittenWhenTheJobHangs) {
    Launch job(folder_, drill({.fault = "sleep", .rank = 1, .step = 40, .place = 1}, {}));
    ASSERT_TRUE(job.wait_for_error("flight records of the hang: " + prefix() + "0 to rank_2\n"));
    std::vector<json> files;
    for (int rank = 0; rank < 3; ++rank) files.push_back(file_of(rank));
    job.signal(SIGTERM);
    EXPECT_THAT(job.wait().err, HasSubstr("flight records at the end: " + prefix()));
    for (const json& file : files) {
        ASSERT_EQ(file["pg_config"].size(), 1U);
        EXPECT_EQ(file["pg_config"].front()["desc"], "all_ranks");
        EXPECT_EQ(file["pg_config"].front()["ranks"], "[0,1,2]");
        EXPECT_EQ(file["entries"].size(), 64U) << "as many as a page has";
    }
    const json& sleeps = files[1]["entries"].back();
    EXPECT_EQ(sleeps["state"], "completed");
    // Rank 0 is the broadcast's root, and one call further.
    const json& waits = files[2]["entries"].back();
    EXPECT_EQ(waits["state"], "started");
    EXPECT_EQ(waits["profiling_name"], "nccl:broadcast");
    EXPECT_EQ(waits["frames"][0]["filename"], "drill_worker.cpp");
    EXPECT_EQ(waits["collective_seq_id"].get<int>(), sleeps["collective_seq_id"].get<int>() + 1);
    EXPECT_EQ(files[0]["entries"].back()["profiling_name"], "nccl:barrier");
}

TEST_F(LaunchFlight, IsWrittenOfEachAttemptThatFails) {
    const LaunchResult result =
        launch(drill({.fault = "death", .rank = 1, .step = 40, .place = 1}, {"--max-restarts=1"}));
    EXPECT_EQ(result.exit_code, 137);
    const std::string line = "flight records at the end: " + prefix() + "0 to rank_2\n";
    const std::size_t first = result.err.find(line);
    ASSERT_NE(first, std::string::npos) << result.err;
    EXPECT_NE(result.err.find(line, first + 1), std::string::npos) << result.err;
    EXPECT_EQ(file_of(0)["entries"].back()["state"], "started");
    EXPECT_EQ(file_of(0)["entries"].back()["retired"], true) << "it has failed";
}

TEST_F(LaunchFlight, IsNotWrittenOfAJobThatEndsWell) {
    const LaunchResult result = launch({option(), "--", "true"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err.find("flight"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(prefix() + "0"));
}

// Also of programs that do not use this library, which the signal would have killed.
TEST_F(LaunchFlight, IsWrittenAtItsSignalWhichWorkersDoNotGet) {
    Launch job(folder_, {option(), "--nproc_per_node=2", "--", "bash", "-c",
                         "trap 'echo got 2' USR2; echo up; while :; do sleep 0.02; done"});
    ASSERT_TRUE(job.wait_for_output("up", 2));
    job.signal(SIGUSR1);
    ASSERT_TRUE(job.wait_for_error("flight records on SIGUSR1: " + prefix() + "0 to rank_1\n"));
    EXPECT_EQ(file_of(1)["entries"], json::array());
    job.signal(SIGUSR2);
    EXPECT_TRUE(job.wait_for_output("got 2", 2));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

TEST_F(LaunchFlight, LeavesTheSignalToWorkersWhereItIsNotItsOwn) {
    Launch job(folder_, {option(), "--flight-recorder-signal=none", "--", "bash", "-c",
                         "trap 'echo got 1; exit 0' USR1; echo up; while :; do sleep 0.02; done"});
    ASSERT_TRUE(job.wait_for_output("up"));
    job.signal(SIGUSR1);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("got 1"));
    EXPECT_THAT(result.err, Not(HasSubstr("flight")));
}

TEST_F(LaunchFlight, CostsNoJobItsExitCodeWhereItCannotBeWritten) {
    const std::string folder = kept_.path() + "/gone";
    std::filesystem::create_directory(folder);
    const LaunchResult result = launch(
        {"--flight-recorder=" + folder + "/r", "--", "bash", "-c", "rmdir " + folder + "; exit 3"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("cannot write the flight records at the end: " + folder +
                                      "/r0: No such file or directory\n"));
}

TEST_F(LaunchFlight, IsRefusedBeforeAnythingStarts) {
    const LaunchResult result =
        launch({"--flight-recorder=/nowhere/r", "--", "bash", "-c", "echo started"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("there is no directory /nowhere"));
    EXPECT_THAT(result.out, Not(HasSubstr("started")));
}

}  // namespace
}  // namespace ddp::launcher::testing
