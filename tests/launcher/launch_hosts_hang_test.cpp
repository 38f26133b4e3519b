// Jobs of several hosts that hang: the coordinator says who is to blame, and where, as on one host.
#include "base/process/process_tree.hpp"
#include "launcher/hang_drills.hpp"
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

// A rank on each of three hosts.
class LaunchHostsHang : public HostsTest {
protected:
    using Launchers = std::vector<HostProgram>;

    Launchers launch_drill(HostWorld& world, const Drill& drill, Words options) {
        options.emplace_back("--shutdown-timeout=1");
        Launchers launchers;
        for (int host = 1; host <= drill_ranks; ++host) {
            launchers.push_back(launch_static(world, host, 1, drill.command(), options));
        }
        return launchers;
    }
    void check(HostWorld& world, const Fault& fault, const Drill& drill) {
        SCOPED_TRACE(drill.name());
        Launchers launchers = launch_drill(world, drill, {"--on-hang=stop", "--hang-timeout=0"});
        HostProgram& culprit = launchers[static_cast<std::size_t>(drill.rank)];
        ASSERT_TRUE(culprit.wait_for_output("now")) << culprit.err();
        const Clock::time_point now = Clock::now();
        if (fault.outcome == DrillOutcome::hang) {
            EXPECT_TRUE(launchers[0].wait_for_error("holds up")) << launchers[0].err();
            times_.push_back(Clock::now() - now);
        }
        for (HostProgram& launcher : launchers) {
            EXPECT_NE(launcher.wait(20s).exit_code, 0) << launcher.err();
            EXPECT_THAT(launcher.err(), AllOf(HasSubstr(rank_name(drill.rank)),
                                              HasSubstr("h" + std::to_string(drill.rank + 1))));
        }
        expect_explained(fault, drill, launchers[0].err());
        expect_explained(fault, drill, culprit.err());
    }
    void print_times() {
        if (times_.empty()) return;
        std::ranges::sort(times_);
        const auto ms = [&](std::size_t i) {
            return static_cast<int>(
                std::chrono::duration_cast<std::chrono::milliseconds>(times_[i]).count());
        };
        std::printf("said %d ms after the fault (median), at most %d ms, of %zu\n",
                    ms(times_.size() / 2), ms(times_.size() - 1), times_.size());
    }

    std::vector<Clock::duration> times_;
};

// Ten seconds, as it has to last.
TEST_F(LaunchHostsHang, ARankThatIsSlowIsNamed) {
    HostWorld world(drill_ranks);
    const TemporaryFolder logs;
    Launchers launchers =
        launch_drill(world, {.backend = "gloo", .fault = "none"},
                     {"--inject=slow:rank=2@step=30", "--log-dir=" + logs.path()});
    EXPECT_TRUE(launchers[0].wait_for_error("rank 2 slows down ranks 0, 1: in the last "))
        << launchers[0].err();
    EXPECT_TRUE(launchers[0].wait_for_error("  rank 2 (h3, pid ")) << launchers[0].err();
    EXPECT_TRUE(launchers[1].wait_for_error("rank 2 slows down")) << launchers[1].err();
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) launcher.wait(20s);
    EXPECT_EQ(report_below(logs.path())["slow"]["ranks"], nlohmann::json::array({2}));
}

// Of each fault one place, by chance.
// Twelve seconds, as it has to last.
TEST_F(LaunchHostsHang, ANetworkThatLosesPacketsIsNamed) {
    HostWorld world(drill_ranks);
    Launchers launchers = launch_drill(world, {.backend = "gloo", .fault = "none", .rank = 0}, {});
    ASSERT_TRUE(launchers[0].wait_for_output("done")) << launchers[0].err();
    world.delay(2, 1ms, 20);
    EXPECT_TRUE(launchers[0].wait_for_error("of its TCP segments again (")) << launchers[0].err();
    EXPECT_THAT(launchers[0].err(), HasSubstr("ddp-launch: host h"));
    EXPECT_THAT(launchers[0].err(), Not(HasSubstr("slows down")));
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) launcher.wait(20s);
}

TEST_F(LaunchHostsHang, IsExplainedWhateverHasCausedIt) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    HostWorld world(drill_ranks);
    for (const Fault& fault : faults) {
        check(world, fault, Drill::by_chance(random, fault, "gloo", 100));
    }
}

TEST_F(LaunchHostsHang, SoakIsExplainedWhateverHasCausedIt) {
    std::mt19937 random(12);
    HostWorld world(drill_ranks);
    for (const Fault& fault : faults) {
        for (int i = 0; i < 25; ++i) {
            check(world, fault, Drill::by_chance(random, fault, "gloo", 500));
        }
    }
    print_times();
}

TEST_F(LaunchHostsHang, SaysThatAStoppedRankRunsAgainAndTheJobGoesOn) {
    HostWorld world(drill_ranks);
    Launchers launchers =
        launch_drill(world, {.backend = "gloo", .fault = "stop_and_go", .rank = 2}, {});
    HostProgram& head = launchers[0];
    const std::string before = "kill -CONT ";
    ASSERT_TRUE(head.wait_for_error(before)) << head.err();
    const std::string err = head.err();
    EXPECT_THAT(err, HasSubstr(" on h3 lets rank 2 go on"));
    for (const pid_t pid : world.pids_on(3)) ::kill(pid, SIGCONT);
    EXPECT_TRUE(launchers[2].wait_for_output("done"));
    EXPECT_TRUE(head.wait_for_error("runs again: it was stopped for ")) << head.err();
    EXPECT_TRUE(launchers[1].wait_for_error("the job goes on: ranks 0, 1 had waited for "))
        << launchers[1].err();
    EXPECT_EQ(count(head.err(), "holds up"), 1) << "it is said once: " << head.err();
    EXPECT_EQ(count(launchers[1].err(), "holds up"), 1);
    EXPECT_THAT(launchers[1].err(), Not(HasSubstr(before))) << "a line is enough there";
    head.signal(SIGTERM);
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait(20s).exit_code, 128 + SIGTERM);
}

TEST_F(LaunchHostsHang, EachHostShowsWhereItsOwnRanksAre) {
    HostWorld world(drill_ranks);
    Launchers launchers =
        launch_drill(world, {.backend = "gloo", .fault = "sleep", .rank = 2, .place = 1}, {});
    ASSERT_TRUE(launchers[2].wait_for_error("stack of rank 2 (pid ")) << launchers[2].err();
    ASSERT_TRUE(launchers[2].wait_for_error(drill_main));
    EXPECT_THAT(launchers[2].err(), HasSubstr("nanosleep"));
    EXPECT_TRUE(launchers[0].wait_for_error(", which waits:")) << launchers[0].err();
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait(20s).exit_code, 128 + SIGTERM);
    EXPECT_THAT(launchers[0].err(), Not(HasSubstr("stack of rank 2")));
    EXPECT_THAT(launchers[1].err(), Not(HasSubstr("stack of")));
}

// The coordinator's does, also of a job in which a host does not answer.
TEST_F(LaunchHostsHang, OneHostShowsTheRanksOfAll) {
    HostWorld world(drill_ranks);
    const auto folder = [&](int host) { return files_.path() + "/" + std::to_string(host); };
    const auto environment = [&](int host) { return Words{"XDG_RUNTIME_DIR=" + folder(host)}; };
    Launchers launchers;
    for (int host = 1; host <= drill_ranks; ++host) {
        std::filesystem::create_directory(folder(host));
        launchers.push_back(launch_static(
            world, host, 1, Drill{.backend = "gloo", .fault = "sleep", .rank = 2}.command(),
            {"--shutdown-timeout=1"}, {environment(host)}));
    }
    const auto inspect = [&](int host, const Words& more = {}) {
        Words words{DDP_LAUNCH, "inspect"};
        words.insert(words.end(), more.begin(), more.end());
        return world.run(host, words, environment(host)).wait().out;
    };
    // A busy host may not answer in time.
    const auto shown = [&](int host, const std::string& text) {
        std::string all;
        for (int i = 0; i < 20 && all.find(text) == all.npos; ++i) all = inspect(host);
        return all;
    };
    ASSERT_TRUE(launchers[0].wait_for_error("holds up")) << launchers[0].err();
    EXPECT_THAT(shown(1, "   2  h3 "), HasSubstr("   2  h3 "));
    nlohmann::json run;
    const auto is_whole = [&] {
        return run["ranks"].size() == 3 && run["hang"]["stacks"].size() == 2;
    };
    for (int i = 0; i < 50 && !is_whole(); ++i) {
        run = nlohmann::json::parse(inspect(1, {"--json"}));
    }
    // Of the rank to blame, and of one that waits: their hosts have told.
    ASSERT_TRUE(is_whole()) << run;
    EXPECT_EQ(run["hang"]["stacks"][0]["rank"], 0);
    EXPECT_EQ(run["hang"]["stacks"][1]["rank"], 2);
    EXPECT_THAT(run["hang"]["stacks"][1]["native"].dump(), HasSubstr("nanosleep"));
    EXPECT_EQ(run["has_asked_hosts"], true);
    ASSERT_EQ(run["ranks"].size(), 3U) << run;
    for (int rank = 0; rank < drill_ranks; ++rank) {
        const auto& row = run["ranks"][static_cast<std::size_t>(rank)];
        EXPECT_EQ(row["rank"], rank);
        EXPECT_EQ(row["host"], "h" + std::to_string(rank + 1));
        EXPECT_EQ(row["is_here"], rank == 0);
        EXPECT_EQ(row["step"], 39);
        EXPECT_GT(row["pid"], 0);
        EXPECT_THAT(row["call"].get<std::string>(), HasSubstr("(drill_worker.cpp:"));
    }
    // The latter where its stack has been read meanwhile.
    EXPECT_THAT(run["ranks"][2]["system_call"].get<std::string>(),
                AnyOf(HasSubstr("nanosleep"), HasSubstr("a timed wait")));
    EXPECT_THAT(shown(1, "   2  h3 "), HasSubstr("rank  host"));
    EXPECT_THAT(inspect(2), AllOf(Not(HasSubstr("rank  host")),
                                  HasSubstr("1 of the job's 3 ranks are on this host")));

    const std::vector<pid_t> second = base::children_of(launchers[1].pid());
    for (const pid_t pid : second) ::kill(pid, SIGSTOP);
    EXPECT_THAT(shown(1, "   2  h3 "),
                AllOf(HasSubstr("   2  h3 "), Not(HasSubstr("   1  h2 ")),
                      HasSubstr("2 of the job's 3 ranks are shown; of the others their hosts tell "
                                "nothing")));
    for (const pid_t pid : second) ::kill(pid, SIGCONT);
    EXPECT_THAT(shown(1, "   1  h2 "), HasSubstr("   1  h2 "));
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait(20s).exit_code, 128 + SIGTERM);

    // By its name, as root is shown jobs of other tests, too.
    run = nlohmann::json::parse(inspect(1, {"--json", run["run_id"].get<std::string>()}));
    EXPECT_EQ(run["state"], "ended");
    EXPECT_THAT(run["report"].get<std::string>(), HasSubstr("stopped by SIGTERM"));
    EXPECT_EQ(run["hang"]["ranks"], nlohmann::json::array({2})) << launchers[0].err();
    ASSERT_EQ(run["ranks"].size(), 3U) << run;
    for (std::size_t rank = 0; rank < drill_ranks; ++rank) {
        EXPECT_EQ(run["ranks"][rank]["host"], "h" + std::to_string(rank + 1));
        EXPECT_EQ(run["ranks"][rank]["end"], "SIGTERM (signal 15)");
        EXPECT_THAT(run["ranks"][rank]["call"].get<std::string>(), HasSubstr("drill_worker.cpp:"));
    }
}

TEST_F(LaunchHostsHang, SaysNothingOfAPause) {
    HostWorld world(drill_ranks);
    Launchers launchers = launch_drill(world, {.backend = "gloo", .fault = "pause"},
                                       {"--on-hang=stop", "--hang-timeout=0"});
    ASSERT_TRUE(launchers[1].wait_for_output("done")) << launchers[0].err();
    std::this_thread::sleep_for(600ms);
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) {
        EXPECT_EQ(launcher.wait(20s).exit_code, 128 + SIGTERM);
        EXPECT_THAT(launcher.err(), Not(AnyOf(HasSubstr("holds up"), HasSubstr("goes on"))));
    }
}

TEST_F(LaunchHostsHang, IsInTheReportOfTheCoordinator) {
    HostWorld world(drill_ranks);
    Launchers launchers = launch_drill(world, {.backend = "gloo", .fault = "sleep"},
                                       {"--log-dir=" + files_.path() + "/logs", "--rdzv-id=x"});
    ASSERT_TRUE(launchers[0].wait_for_error("rank 1 holds up ranks 0, 2"));
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) launcher.wait(20s);
    EXPECT_THAT(launchers[0].err(), HasSubstr("hang     rank 1 holds up ranks 0, 2"));
    const nlohmann::json report = report_below(files_.path() + "/logs");
    EXPECT_EQ(report["hang"]["kind"], "missing");
    EXPECT_EQ(report["hang"]["ranks"], nlohmann::json::array({1}));
}

TEST_F(LaunchHostsHang, IsAFailureAfterWhichTheJobIsStartedAgain) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world,
                   bash("if [ $TORCHELASTIC_RESTART_COUNT$RANK = 03 ]; then kill -STOP $$; fi; "
                        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 60"),
                   {"--on-hang=stop", "--hang-timeout=0", "--max-restarts=1"});
    for (HostProgram& launcher : launchers) {
        EXPECT_EQ(launcher.wait(20s).exit_code, 0) << launcher.err();
        EXPECT_THAT(launcher.err(),
                    AllOf(HasSubstr("rank 3 does not run since "), HasSubstr("restart 1 of 1")));
    }
}

TEST_F(LaunchHostsHang, IsNobodysBusinessWhenItIsOff) {
    HostWorld world(drill_ranks);
    Launchers launchers =
        launch_drill(world, {.backend = "gloo", .fault = "sleep"}, {"--on-hang=off"});
    ASSERT_TRUE(launchers[1].wait_for_output("now"));
    std::this_thread::sleep_for(1500ms);
    launchers[0].signal(SIGTERM);
    for (HostProgram& launcher : launchers) {
        EXPECT_THAT(launcher.wait(20s).err, Not(HasSubstr("holds up")));
    }
}

}  // namespace
}  // namespace ddp::launcher::testing
