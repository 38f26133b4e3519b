// --report and --trace of jobs of several hosts: the coordinator writes them, of all ranks.
#include "launcher/hang_drills.hpp"
#include "launcher/hosts_fixture.hpp"
#include "launcher/logs/content_of.hpp"
#include "launcher/timeline/flight_reader.hpp"
#include "launcher/timeline/page_object.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// A rank on each of three hosts; each host has files of its own.
class LaunchHostsTimeline : public HostsTest {
protected:
    using Launchers = std::vector<HostProgram>;

    std::string folder(int host) const { return files_.path() + "/h" + std::to_string(host); }
    Words options_of(int host) const {
        return {"--report=" + folder(host) + "/job.html", "--trace=" + folder(host) + "/job.json",
                "--shutdown-timeout=1"};
    }
    Launchers launch_drill(HostWorld& world, const Drill& drill, const Words& more = {}) {
        Launchers launchers;
        for (int host = 1; host <= drill_ranks; ++host) {
            std::filesystem::create_directory(folder(host));
            Words options = options_of(host);
            options.insert(options.end(), more.begin(), more.end());
            launchers.push_back(launch_static(world, host, 1, drill.command(), options));
        }
        return launchers;
    }
    std::string text(int host, const std::string& name) const {
        return content_of(folder(host) + "/" + name);
    }
    bool has_files(int host) const { return !std::filesystem::is_empty(folder(host)); }
};

// The first and the last time of the activities with that number and kind.
std::pair<std::int64_t, std::int64_t> times_of(const json& rank, int what, int number) {
    std::int64_t start = rank["started"].get<std::int64_t>();
    for (std::size_t i = 0; i < rank["what"].size(); ++i) {
        start += rank["start"][i].get<std::int64_t>();
        if (rank["what"][i] != what || rank["number"][i] != number) continue;
        return {start, start + rank["length"][i].get<std::int64_t>()};
    }
    ADD_FAILURE() << "there is no such activity";
    return {};
}

TEST_F(LaunchHostsTimeline, HasTheRanksOfAllHosts) {
    HostWorld world(drill_ranks);
    Launchers launchers = launch_drill(
        world, {.backend = "gloo", .fault = "death", .rank = 2, .step = 40, .place = 1},
        {"--max-restarts=1"});
    for (HostProgram& launcher : launchers) EXPECT_NE(launcher.wait(20s).exit_code, 0);
    EXPECT_THAT(launchers[0].err(),
                AllOf(HasSubstr("ddp-launch: report: " + folder(1) + "/job.html\n"),
                      HasSubstr("ddp-launch: trace: " + folder(1) + "/job.json\n")));
    for (const int host : {2, 3}) {
        EXPECT_FALSE(has_files(host)) << launchers[static_cast<std::size_t>(host - 1)].err();
    }
    const json data = object_of(text(1, "job.html"));
    EXPECT_EQ(data["report"]["outcome"], "failed");
    EXPECT_EQ(data["report"]["root_rank"], 2);
    EXPECT_THAT(data["names"],
                Contains(json("all_reduce of 16 float32 (sum) (" + line_of("sum") + ")")));
    ASSERT_THAT(data["attempts"], SizeIs(2));
    for (const json& attempt : data["attempts"]) {
        EXPECT_THAT(attempt["text"].get<std::string>(), HasSubstr("rank 2 "));
        ASSERT_THAT(attempt["ranks"], SizeIs(3));
        // A barrier is over for nobody before all have come.
        std::int64_t last_came = INT64_MIN;
        std::int64_t first_went = INT64_MAX;
        for (std::size_t rank = 0; rank < 3; ++rank) {
            const json& one = attempt["ranks"][rank];
            EXPECT_EQ(one["rank"], rank);
            EXPECT_EQ(one["host"], "h" + std::to_string(rank + 1));
            EXPECT_EQ(one["joined"], true);
            EXPECT_GE(std::ranges::count(one["what"], json(0)), 3 * 39) << "collectives";
            const auto [came, went] = times_of(one, 0, 60);
            last_came = std::max(last_came, came);
            first_went = std::min(first_went, went);
        }
        constexpr std::int64_t ticks_of_100_ms =
            1'000'000;  // hosts tell their clocks to a round trip
        EXPECT_LE(last_came, first_went + ticks_of_100_ms);
        EXPECT_EQ(attempt["ranks"][2]["end"], "SIGKILL (signal 9)");
    }
    EXPECT_THAT(text(1, "job.json"), HasSubstr("rank 2 on h3, attempt 2 (pid "));
}

TEST_F(LaunchHostsTimeline, IsTheCoordinatorsToWrite) {
    HostWorld world(2);
    std::filesystem::create_directory(folder(2));
    const Words command{"bash", "-c", "echo $DDP_CONTROL_FD"};
    HostProgram first = launch_static(world, 1, 1, command);
    HostProgram second = launch_static(world, 2, 1, command, options_of(2));
    EXPECT_EQ(first.wait().exit_code, 0) << first.err();
    EXPECT_EQ(second.wait().exit_code, 0) << second.err();
    EXPECT_THAT(second.err(), HasSubstr("--report and --trace: the coordinator writes them, and "
                                        "was not asked for any\n"));
    EXPECT_FALSE(has_files(2));
    EXPECT_EQ(std::ranges::count(second.out(), ':'), 1) << "no ring: " << second.out();
}

// The rings are those of a job of so many ranks, not of a host.
TEST_F(LaunchHostsTimeline, TakesAsMuchMemoryAsOnOneHost) {
    HostWorld world(2);
    std::filesystem::create_directory(folder(1));
    const Words command{"bash", "-c", "echo $DDP_CONTROL_FD"};
    HostProgram first = launch_static(world, 1, 8, command, options_of(1));
    HostProgram second = launch_static(world, 2, 8, command);
    EXPECT_EQ(first.wait().exit_code, 0) << first.err();
    EXPECT_EQ(second.wait().exit_code, 0) << second.err();
    EXPECT_THAT(first.out(), HasSubstr(":65536\n"));
    EXPECT_THAT(second.out(), HasSubstr(":65536\n"));
    EXPECT_THAT(object_of(text(1, "job.html"))["attempts"][0]["ranks"], SizeIs(16));
}

// A job that may have other hosts, one of which is lost: nobody is to blame, and it goes on.
TEST_F(LaunchHostsTimeline, HasTheAttemptsThatOtherHostsHaveEnded) {
    HostWorld world(3);
    std::filesystem::create_directory(folder(1));
    const Words command = Drill{.backend = "gloo", .fault = "none", .rank = 0}.command();
    const auto launch_elastic = [&](int host, Words options) {
        options.insert(options.end(), {"--nnodes=1:3", "--rdzv-endpoint=h1:29500",
                                       "--rdzv-id=elastic", "--nproc-per-node=1",
                                       "--shutdown-timeout=1", "--rdzv-conf=last_call_timeout=1"});
        return launch(world, host, options, command);
    };
    HostProgram first = launch_elastic(1, options_of(1));
    ASSERT_TRUE(first.wait_for_output("done")) << first.err();
    HostProgram second = launch_elastic(2, {});
    ASSERT_TRUE(first.wait_for_output("done", 2)) << first.err();
    first.signal(SIGTERM);
    first.wait(20s);
    second.wait(20s);
    const json data = object_of(text(1, "job.html"));
    ASSERT_THAT(data["attempts"], SizeIs(2)) << first.err();
    EXPECT_EQ(data["attempts"][0]["text"], "hosts came or went: the workers were started again");
    EXPECT_THAT(data["attempts"][0]["ranks"], SizeIs(1));
    EXPECT_THAT(data["attempts"][1]["ranks"], SizeIs(2));
    EXPECT_GE(data["attempts"][1]["ranks"][1]["what"].size(), 3 * 39U);
}

TEST_F(LaunchHostsTimeline, IsWrittenOfAJobThatTheUserStops) {
    HostWorld world(drill_ranks);
    Launchers launchers = launch_drill(world, {.backend = "gloo", .fault = "none", .rank = 0});
    ASSERT_TRUE(launchers[0].wait_for_output("done")) << launchers[0].err();
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait(20s).exit_code, 128 + SIGTERM);
    const json data = object_of(text(1, "job.html"));
    EXPECT_EQ(data["report"]["outcome"], "stopped");
    ASSERT_THAT(data["attempts"][0]["ranks"], SizeIs(3));
    EXPECT_GE(data["attempts"][0]["ranks"][2]["what"].size(), 3 * 39U);
    EXPECT_THAT(launchers[2].err(), Not(HasSubstr("report:")));
}

// Each host those of its ranks.
TEST_F(LaunchHostsTimeline, HasFlightRecordsOfEachHost) {
    for (const std::string fault : {"death", "sleep"}) {
        HostWorld world(drill_ranks);
        Launchers launchers;
        for (int host = 1; host <= drill_ranks; ++host) {
            std::filesystem::remove_all(folder(host));
            std::filesystem::create_directory(folder(host));
            const Drill drill{.backend = "gloo", .fault = fault, .rank = 2, .place = 1};
            launchers.push_back(launch_static(
                world, host, 1, drill.command(),
                {"--flight-recorder=" + folder(host) + "/rank_", "--shutdown-timeout=1"}));
        }
        const std::string why = fault == "death" ? "at the end" : "of the hang";
        for (int host = 1; host <= drill_ranks; ++host) {
            HostProgram& launcher = launchers[static_cast<std::size_t>(host - 1)];
            const std::string rank = std::to_string(host - 1);
            EXPECT_TRUE(launcher.wait_for_error("flight records " + why + ": " + folder(host) +
                                                "/rank_" + rank + "\n"))
                << launcher.err();
            const json record = read_flight_record(text(host, "rank_" + rank));
            EXPECT_EQ(record["rank"], host - 1);
            EXPECT_EQ(record["pg_config"].front()["ranks"], "[0,1,2]");
            EXPECT_EQ(record["entries"].size(), 64U);
        }
        launchers[0].signal(SIGTERM);
        for (HostProgram& launcher : launchers) launcher.wait(20s);
    }
}

}  // namespace
}  // namespace ddp::launcher::testing
