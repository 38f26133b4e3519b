// --report and --trace: of jobs that succeed, fail again and again, hang and are interrupted.
#include "launcher/hang_drills.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/logs/content_of.hpp"
#include "launcher/timeline/page_object.hpp"

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
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class LaunchTimeline : public LaunchTest {
protected:
    std::string page_path() const { return kept_.path() + "/job.html"; }
    std::string trace_path() const { return kept_.path() + "/job.json"; }
    std::string page_option() const { return "--report=" + page_path(); }
    std::string trace_option() const { return "--trace=" + trace_path(); }
    json page() const { return object_of(content_of(page_path())); }
    // Three ranks.
    static Launch::Words drill(const Drill& drill, Launch::Words options) {
        options.insert(options.begin(), "--nproc_per_node=3");
        for (const std::string& word : drill.command()) options.push_back(word);
        return options;
    }

    TemporaryFolder kept_;
};

int activities(const json& rank, int what) {
    return static_cast<int>(std::ranges::count(rank["what"], json(what)));
}

TEST_F(LaunchTimeline, HasAllAttemptsOfAJobThatFails) {
    const LaunchResult result = launch(drill({.fault = "death", .rank = 1, .step = 40, .place = 1},
                                             {"--max-restarts=1", page_option(), trace_option()}));
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.err, AllOf(HasSubstr("ddp-launch: report: " + page_path() + "\n"),
                                  HasSubstr("ddp-launch: trace: " + trace_path() + "\n")));
    const json data = page();
    EXPECT_EQ(data["report"]["outcome"], "failed");
    EXPECT_EQ(data["report"]["root_rank"], 1);
    EXPECT_EQ(data["groups"], json::parse(R"([{"size":3,"gpu":false}])"));
    ASSERT_THAT(data["attempts"], SizeIs(2));
    for (int attempt = 0; attempt < 2; ++attempt) {
        const json& one = data["attempts"][static_cast<std::size_t>(attempt)];
        EXPECT_EQ(one["attempt"], attempt);
        EXPECT_THAT(one["text"].get<std::string>(), HasSubstr("rank 1 (local rank 1, pid "));
        ASSERT_THAT(one["ranks"], SizeIs(3));
        for (const json& rank : one["ranks"]) {
            EXPECT_EQ(rank["joined"], true);
            EXPECT_EQ(rank["lost"], 0);
            EXPECT_GE(activities(rank, 3), 38) << "steps";
            EXPECT_GE(activities(rank, 0), 3 * 39) << "collectives";
        }
        EXPECT_EQ(one["ranks"][1]["end"], "SIGKILL (signal 9)");
    }
    EXPECT_THAT(data["names"],
                AllOf(Contains(json("all_reduce of 16 float32 (sum) (" + line_of("sum") + ")")),
                      Contains(json("step"))));
    const json trace = json::parse(content_of(trace_path()));
    EXPECT_THAT(trace["traceEvents"].size(), ::testing::Gt(6 * 4 * 38U));
}

TEST_F(LaunchTimeline, ShowsTheCallsThatDidNotEndOfAJobThatHangs) {
    const LaunchResult result = launch(drill(
        {.fault = "stop", .place = 1}, {"--on-hang=stop", "--hang-timeout=0", page_option()}));
    EXPECT_NE(result.exit_code, 0);
    const json data = page();
    EXPECT_EQ(data["report"]["hang"]["kind"], "held");
    const json& rank = data["attempts"][0]["ranks"][0];
    const auto unfinished = std::ranges::find(rank["what"], json(8));
    ASSERT_NE(unfinished, rank["what"].end());
    const auto index = static_cast<std::size_t>(unfinished - rank["what"].begin());
    EXPECT_EQ(rank["number"][index], 123);
    EXPECT_EQ(data["names"][rank["name"][index].get<std::size_t>()],
              "barrier (" + line_of("meet") + ")");
}

TEST_F(LaunchTimeline, IsWrittenOfAJobThatTheUserStops) {
    Launch job(folder_, {page_option(), "--nproc_per_node=2", "--", "bash", "-c",
                         "echo up; sleep 100; true"});
    ASSERT_TRUE(job.wait_for_output("up", 2));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
    const json data = page();
    EXPECT_EQ(data["report"]["outcome"], "stopped");
    EXPECT_EQ(data["attempts"][0]["ranks"][1]["joined"], false);
    EXPECT_EQ(data["command"], json::array({"bash", "-c", "echo up; sleep 100; true"}));
}

// They run one after the other; each has calls and steps of its own, with numbers from 1.
TEST_F(LaunchTimeline, HasAllProgramsOfAWorker) {
    const std::string drill = Drill{}.command()[0] + " shm none 0 1 0";  // rank 0 says "done"
    const std::string for_a_second =
        drill + " & first=$!; sleep 1; kill -KILL $first; wait $first; ";
    // No rank begins anew while the other has not ended.
    const std::string wait_for_other = "touch " + kept_.path() + "/$RANK; until [ -e " +
                                       kept_.path() + "/0 -a -e " + kept_.path() +
                                       "/1 ]; do sleep 0.01; done; ";
    Launch job(folder_, {"--nproc_per_node=2", page_option(), "--", "bash", "-c",
                         for_a_second + wait_for_other + "exec " + drill});
    ASSERT_TRUE(job.wait_for_output("done", 2));
    job.signal(SIGTERM);
    job.wait();
    const json data = page();
    for (const json& rank : data["attempts"][0]["ranks"]) {
        int programs = 0;
        for (std::size_t i = 0; i < rank["what"].size(); ++i) {
            programs += rank["what"][i] == 0 && rank["number"][i] == 1 ? 1 : 0;
        }
        EXPECT_EQ(programs, 2);
    }
}

// The folder is that of the launcher's start, also in a PID namespace.
TEST_F(LaunchTimeline, IsWrittenFromAPidNamespaceToo) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "no PID namespaces here";
    const LaunchResult result = launch({"--contain=pidns", page_option(), "--", "true"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(page()["report"]["outcome"], "succeeded");
}

TEST_F(LaunchTimeline, CostsNoJobItsExitCodeWhereItCannotBeWritten) {
    const std::string folder = kept_.path() + "/gone";
    std::filesystem::create_directory(folder);
    const LaunchResult result = launch(
        {"--report=" + folder + "/a.html", "--", "bash", "-c", "rmdir " + folder + "; exit 3"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("ddp-launch: cannot write the report " + folder));
}

TEST_F(LaunchTimeline, IsRefusedBeforeAnythingStarts) {
    const auto refused = [&](const Launch::Words& options) {
        Launch::Words words = options;
        words.insert(words.end(), {"--", "bash", "-c", "echo started"});
        const LaunchResult result = launch(words);
        EXPECT_EQ(result.exit_code, 2);
        EXPECT_THAT(result.out, Not(HasSubstr("started")));
        return result.err;
    };
    EXPECT_THAT(refused({"--report=/nowhere/a.html"}), HasSubstr("there is no directory /nowhere"));
    EXPECT_THAT(refused({"--trace=" + kept_.path() + "/none/a.json"}), HasSubstr("/none\n"));
    EXPECT_FALSE(std::filesystem::exists(page_path()));
}

TEST_F(LaunchTimeline, GivesWorkersNoRingUnlessItIsWanted) {
    const auto handed_over = [&](Launch::Words options) {
        options.insert(options.end(), {"--", "bash", "-c", "echo $DDP_CONTROL_FD"});
        return launch(options).out;
    };
    const std::string without = handed_over({});
    EXPECT_EQ(std::ranges::count(without, ':'), 1) << without;
    EXPECT_THAT(handed_over({trace_option()}), EndsWith(":131072\n"));
}

}  // namespace
}  // namespace ddp::launcher::testing
