// report.json as a reader would take it.
#include "launcher/report/report_file.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/report/outcome.hpp"
#include "launcher/worker_ends.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace ddp::launcher {
namespace {

using nlohmann::json;
using testing::because_of;
using testing::exited;
using ::testing::HasSubstr;
using testing::killed;
using testing::stopped;

TEST(ReportFile, HasTheStacksOfAHang) {
    const HangFacts hang{
        .kind = "missing", .ranks = {1}, .stacks = {{.rank = 1, .pid = 7, .problem = "gone"}}};
    const json file = json::parse(to_json({.facts = {.hang = hang}}));
    ASSERT_EQ(file["hang"]["stacks"].size(), 1U);
    EXPECT_EQ(file["hang"]["stacks"][0]["rank"], 1);
    EXPECT_EQ(file["hang"]["stacks"][0]["problem"], "gone");
}

TEST(RootCause, OfAHangThatIsNobodysFaultIsWhoFailed) {
    const std::vector<WorkerEnd> ended{exited(0, 3), exited(1, 0)};
    const JobEnd job{.workers = 2, .facts = {.hang = HangFacts{.kind = "stuck"}}};
    const auto root = root_cause_of(ended, job);
    ASSERT_TRUE(root);
    EXPECT_EQ(root->rank, 0);
    EXPECT_FALSE(root->held_up);
}

TEST(ReportFile, SaysOfEachWorkerHowItEnded) {
    WorkerEnd root = killed(2, SIGSEGV);
    root.error = contract::ErrorReport{"bad \xff byte", {}, "File a"};
    root.last_stderr = "last\n";
    root.ran_for = std::chrono::milliseconds{1500};
    const std::vector<WorkerEnd> ended{root, because_of(1, 2), stopped(killed(0, 15), 15),
                                       exited(3, 0)};
    const json file = json::parse(to_json({.outcome = "failed",
                                           .exit_code = 139,
                                           .facts = {.host = "node7", .hints = {"a hint"}},
                                           .message = "text",
                                           .root_cause = whose_fault(ended),
                                           .ended = ended}));
    EXPECT_EQ(file["format"], 1);
    EXPECT_EQ(file["outcome"], "failed");
    EXPECT_EQ(file["exit_code"], 139);
    EXPECT_EQ(file["root_rank"], 2);
    EXPECT_EQ(file["host"], "node7");
    EXPECT_EQ(file["hints"], json::array({"a hint"}));
    const json& workers = file["workers"];
    ASSERT_EQ(workers.size(), 4U);
    const char* parts[] = {"stopped", "left", "root_cause", "fine"};
    for (std::size_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(workers[rank]["rank"], rank);
        EXPECT_EQ(workers[rank]["part"], parts[rank]);
    }
    EXPECT_EQ(workers[0]["stopped_with"], 15);
    EXPECT_EQ(workers[0]["stop_seconds"], 0.24);
    EXPECT_EQ(workers[1]["peer"], 2);
    EXPECT_EQ(workers[2]["signal_name"], "SIGSEGV");
    EXPECT_EQ(workers[2]["exit_code"], 139);
    EXPECT_EQ(workers[2]["seconds"], 1.5);
    EXPECT_EQ(workers[2]["callstack"], "File a");
    EXPECT_EQ(workers[2]["last_stderr"], "last\n");
    EXPECT_TRUE(workers[3]["error"].is_null());
}

TEST(ReportFile, OfASuccessNamesNobody) {
    const std::vector<WorkerEnd> ended{exited(0, 0)};
    const json file = json::parse(to_json({.outcome = "succeeded", .ended = ended}));
    EXPECT_TRUE(file["root_rank"].is_null());
    EXPECT_EQ(file["workers"][0]["part"], "fine");
    EXPECT_LE(file["started"], file["ended"]);
}

TEST(ReportFile, IsWrittenWholeIntoFoldersThatItMakes) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/a/b/report.json";
    EXPECT_EQ(write_report_file(path, "old"), "");
    EXPECT_EQ(write_report_file(path, "new"), "");
    std::ifstream file(path);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "new");
    EXPECT_THAT(write_report_file(path + "/c/report.json", "x"),
                HasSubstr("cannot write the report " + path));
}

}  // namespace
}  // namespace ddp::launcher
