// Jobs that hang in each of the known ways: the launcher says who is to blame, in which call, and
// at which line; and with --on-hang=stop it ends them.
#include "launcher/hang_drills.hpp"
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
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

using Words = Launch::Words;

Words words_of(const Drill& drill, const Words& options) {
    Words all{"--nproc-per-node=" + std::to_string(drill_ranks), "--shutdown-timeout=1"};
    all.insert(all.end(), options.begin(), options.end());
    const Words command = drill.command();
    all.insert(all.end(), command.begin(), command.end());
    return all;
}

class LaunchHang : public LaunchTest {
protected:
    void check(const Fault& fault, const Drill& drill) {
        SCOPED_TRACE(drill.name());
        const LaunchResult result = launch(words_of(drill, {"--on-hang=stop", "--hang-timeout=0"}));
        EXPECT_NE(result.exit_code, 0);
        expect_explained(fault, drill, result.err);
    }
    void train_well(int steps, std::chrono::milliseconds at_most) {
        const std::string seed = std::to_string(std::random_device{}() % 1'000'000);
        SCOPED_TRACE("seed " + seed);
        const TemporaryFolder checkpoints;
        Launch job(folder_, {"-n", "2", DDP_TEST_RESTLESS_WORKER, std::to_string(steps),
                             checkpoints.path(), seed});
        const LaunchResult result = job.wait(at_most);
        EXPECT_EQ(result.exit_code, 0);
        EXPECT_THAT(result.err, Not(HasSubstr("rank")));
        const std::string last = "checkpoint-" + std::to_string(steps / 1'000) + ".safetensors";
        EXPECT_THAT(checkpoints.names(), ::testing::Contains(last)) << "it has trained";
        for (const std::string& name : checkpoints.names()) {
            std::filesystem::remove_all(checkpoints.path() + "/" + name);
        }
    }
};

// Of each fault one place on each backend, by chance. NCCL itself would wait for ever.
TEST_F(LaunchHang, IsExplainedWhateverHasCausedIt) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (const Fault& fault : faults) {
        for (const std::string& backend : backends_of_one_host(fault)) {
            check(fault, Drill::by_chance(random, fault, backend, 100));
        }
    }
}

TEST_F(LaunchHang, SoakIsExplainedWhateverHasCausedIt) {
    std::mt19937 random(11);
    for (const Fault& fault : faults) {
        for (const std::string& backend : backends_of_one_host(fault)) {
            for (int i = 0; i < 25; ++i) {
                check(fault, Drill::by_chance(random, fault, backend, 500));
            }
        }
    }
}

TEST_F(LaunchHang, ShowsWhereTheRanksAreInTheirPrograms) {
    const TemporaryFolder logs;
    const LaunchResult result =
        launch(words_of(Drill{.fault = "sleep", .place = 2},
                        {"--on-hang=stop", "--hang-timeout=0", "--log-dir=" + logs.path()}));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("ddp-launch: stack of rank 1 (pid "), HasSubstr("nanosleep"),
                      HasSubstr("ddp-launch: stack of rank 0 (pid "), HasSubstr(", which waits:"),
                      HasSubstr(" within ddp\n"), HasSubstr(drill_main)));
    EXPECT_EQ(count(result.err, "stack of rank "), 2) << result.err;
    const nlohmann::json stacks = report_below(logs.path())["hang"]["stacks"];
    ASSERT_EQ(stacks.size(), 2U) << stacks;
    EXPECT_EQ(stacks[0]["rank"], 1);
    EXPECT_EQ(stacks[1]["rank"], 0);
    EXPECT_GT(stacks[0]["native"].size(), 0U);
}

TEST_F(LaunchHang, ReadsNoStacksWhereNobodyWantsThem) {
    const LaunchResult result = launch(
        words_of(Drill{.fault = "sleep"}, {"--on-hang=stop", "--hang-timeout=0", "--no-stacks"}));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, AllOf(HasSubstr("holds up"), Not(HasSubstr("stack of"))));
}

TEST_F(LaunchHang, NamesRanksThatWaitForEachOther) {
    const LaunchResult result =
        launch(words_of(Drill{.fault = "recv"}, {"--on-hang=stop", "--hang-timeout=0"}));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("ddp-launch: ranks wait for each other, since "),
                      HasSubstr("is in recv of 64 bytes from rank 2 (" + line_of("from_next")),
                      HasSubstr("is in all_reduce of 16 float32 (sum), operation 121 (" +
                                line_of("sum") + ") of a group of 3")));
}

TEST_F(LaunchHang, SaysWhereARankWasThatHasDied) {
    const LaunchResult result = launch(words_of(Drill{.fault = "death", .place = 1}, {}));
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("rank 1 (local rank 1, pid "),
                      HasSubstr("call     after all_reduce of 16 float32 (sum), operation 121 (" +
                                line_of("sum") + ")"),
                      Not(HasSubstr("  hang "))));
}

TEST_F(LaunchHang, SaysNothingOfAPause) {
    Launch job(folder_, words_of(Drill{.fault = "pause"}, {"--on-hang=stop", "--hang-timeout=0"}));
    ASSERT_TRUE(job.wait_for_output("done"));
    std::this_thread::sleep_for(600ms);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.err, Not(AnyOf(HasSubstr("holds up"), HasSubstr("goes on"))));
}

TEST_F(LaunchHang, SaysThatAStoppedRankRunsAgainAndTheJobGoesOn) {
    Launch job(folder_, words_of(Drill{.fault = "stop_and_go"}, {}));
    const std::string before = "kill -CONT ";
    ASSERT_TRUE(job.wait_for_error(before)) << job.err();
    const std::string err = job.err();
    ::kill(std::stoi(err.substr(err.find(before) + before.size())), SIGCONT);
    EXPECT_TRUE(job.wait_for_output("done"));
    EXPECT_TRUE(job.wait_for_error("runs again: it was stopped for "));
    EXPECT_TRUE(job.wait_for_error("the job goes on: ranks 0, 2 had waited for "));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_EQ(count(result.err, "holds up"), 1) << "it is said once: " << result.err;
}

// Whatever its ranks wait for each other: steps of all lengths, pauses, evaluations, checkpoints.
TEST_F(LaunchHang, SaysNothingOfAJobThatIsWell) { train_well(2'000, patience); }
TEST_F(LaunchHang, SoakSaysNothingOfAJobThatIsWellInAMillionSteps) { train_well(1'000'000, 4h); }

// Half a minute each, in which a rank polls for one that records as little.
TEST_F(LaunchHang, SoakOfRanksThatOthersPollForIsExplained) {
    const auto err_of = [&](const char* call) {
        Launch job(folder_, {"-n", "2", "--shutdown-timeout=1", "--on-hang=stop",
                             "--hang-timeout=0", DDP_TEST_POLLING_WORKER, call});
        EXPECT_TRUE(job.wait_for_error("stack of rank 0")) << job.err();
        job.signal(SIGTERM);
        return job.wait().err;
    };
    const auto sleeps = HasSubstr(") sleeps in ");
    EXPECT_THAT(err_of("MPI_Barrier"),
                AllOf(HasSubstr("rank 1 holds up rank 0, in MPI_Barrier, since 1"), sleeps,
                      HasSubstr("; it has not run for 4"), HasSubstr("load_batch"),
                      Not(HasSubstr("stopping the job"))));
    EXPECT_THAT(err_of("cuStreamSynchronize"),
                AllOf(HasSubstr("rank 1 holds up rank 0, in a wait for the GPU, since 1"), sleeps,
                      HasSubstr("load_batch")));
}

// The stacks of programs that nothing is known of are not read, and nothing is wrong with that.
TEST_F(LaunchHang, SoakNothingIsSaidOfWorkersThatSleep) {
    Launch job(folder_, {"-n", "2", "sleep", "75"});
    const LaunchResult result = job.wait(100s);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, Not(AnyOf(HasSubstr("rank"), HasSubstr("cannot be told"))));
}

// As a container that is paused, or a laptop that sleeps.
TEST_F(LaunchHang, AStandstillOfAllIsNobodysFault) {
    // By step 700 the agent has learned.
    Launch job(folder_, words_of(Drill{.fault = "naps", .step = 700}, {}));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_TRUE(job.wait_for_output("now"));
    const std::vector<pid_t> workers = children_now(*agent);
    ASSERT_EQ(workers.size(), static_cast<std::size_t>(drill_ranks));
    const auto send = [&](int signal) {
        ::kill(*agent, signal);
        std::this_thread::sleep_for(50ms);
        for (const pid_t worker : workers) ::kill(worker, signal);
    };
    send(SIGSTOP);
    std::this_thread::sleep_for(1500ms);
    send(SIGCONT);
    std::this_thread::sleep_for(600ms);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.err, Not(AnyOf(HasSubstr("holds up"), HasSubstr("hold up"),
                                      HasSubstr("do not run"), HasSubstr("goes on:"))));
}

TEST_F(LaunchHang, IsInTheReportOfAJobThatTheUserStops) {
    TemporaryFolder logs;
    Launch job(folder_,
               words_of(Drill{.fault = "sleep"}, {"--log-dir=" + logs.path(), "--rdzv-id=x"}));
    ASSERT_TRUE(job.wait_for_error("holds up"));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_THAT(result.err, HasSubstr("hang     rank 1 holds up ranks 0, 2"));
    const nlohmann::json report = report_below(logs.path());
    EXPECT_EQ(report["hang"]["kind"], "missing");
    EXPECT_EQ(report["hang"]["ranks"], nlohmann::json::array({1}));
    EXPECT_EQ(report["workers"][0]["last_call"],
              "in all_reduce of 16 float32 (sum), operation 121 (" + line_of("sum") + ")");
    std::filesystem::remove_all(logs.path() + "/x");
}

TEST_F(LaunchHang, ADrillThatHasNotTakenPlaceIsSaid) {
    const LaunchResult none = launch({"--inject=kill:rank=0@step=3", "true"});
    EXPECT_EQ(none.exit_code, 0);
    EXPECT_THAT(none.err, HasSubstr("nothing was done: rank 0 has published no step"));
    EXPECT_THAT(launch({"--inject=kill:rank=0@step=0", "true"}).err,
                HasSubstr("nothing was done: rank 0 has published no step"));
    EXPECT_THAT(launch({"--inject=kill:rank=0@step=3", "false"}).err,
                Not(HasSubstr("nothing was done")));
}

// --inject, of a program that makes no mistake.
TEST_F(LaunchHang, IsDrilledByFaultsOnPurpose) {
    const auto drill = [&](const std::string& fault, const Words& more = {}) {
        Words options{"--inject=" + fault + ":rank=1@step=30", "--on-hang=stop",
                      "--hang-timeout=0"};
        options.insert(options.end(), more.begin(), more.end());
        return launch(words_of({.fault = "none"}, options));
    };
    LaunchResult result = drill("kill");
    EXPECT_EQ(result.exit_code, 128 + SIGKILL);
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1 (local rank 1, pid "),
                                  HasSubstr("--inject: kill at step 30")));
    result = drill("exit");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr(") failed: exit code 1"));
    result = drill("stop");
    EXPECT_THAT(result.err, HasSubstr("rank 1 holds up ranks 0, 2"));
    result = drill("delay");
    EXPECT_THAT(result.err, HasSubstr("rank 1 holds up ranks 0, 2"));
    result = drill("mismatch");
    EXPECT_THAT(result.err, AllOf(HasSubstr("ranks have called different things"),
                                  HasSubstr("  rank 1: barrier, operation ")));
    // The second start goes on until somebody ends it.
    Launch job(folder_, words_of({.fault = "none", .step = 60},
                                 {"--inject=kill:rank=1@step=30", "--max-restarts=1"}));
    EXPECT_TRUE(job.wait_for_output("done"));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGTERM);
}

// Ten seconds, as it has to last.
TEST_F(LaunchHang, ARankThatIsSlowIsNamed) {
    const TemporaryFolder logs;
    Launch job(folder_, words_of({.fault = "none"},
                                 {"--inject=slow:rank=1@step=30", "--log-dir=" + logs.path()}));
    ASSERT_TRUE(job.wait_for_error("rank 1 slows down ranks 0, 2: in the last ")) << job.err();
    EXPECT_TRUE(job.wait_for_error("\nddp-launch:   rank 1 (pid ")) << job.err();
    job.signal(SIGTERM);
    job.wait();
    EXPECT_EQ(report_below(logs.path())["slow"]["ranks"], nlohmann::json::array({1}));
}

TEST_F(LaunchHang, OfAnyProgramIsSeenThatItIsStopped) {
    const LaunchResult result =
        launch({"-n", "2", "--on-hang=stop", "--hang-timeout=0", "--no-python", "sh", "-c",
                "if [ $RANK = 1 ]; then kill -STOP $$; fi; exec sleep 60"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("rank 1 does not run since "), HasSubstr(" is stopped (SIGSTOP)"),
                      HasSubstr("kill -CONT "), HasSubstr("rank 1 (local rank 1, pid "),
                      HasSubstr(") held up the job: it was stopped by SIGTERM")));
}

TEST_F(LaunchHang, EndsNoJobBeforeItsTime) {
    Launch job(folder_, words_of(Drill{.fault = "stop_and_go"}, {"--on-hang=stop"}));
    ASSERT_TRUE(job.wait_for_error("kill -CONT ")) << job.err();
    std::this_thread::sleep_for(600ms);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.err, Not(HasSubstr("stopping the job (--on-hang=stop)")));
}

TEST_F(LaunchHang, IsAFailureAfterWhichTheJobIsStartedAgain) {
    const LaunchResult result =
        launch({"-n", "1", "--on-hang=stop", "--hang-timeout=0", "--max-restarts=1", "--no-python",
                "sh", "-c", "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then kill -STOP $$; fi"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("restart 1 of 1"));
}

TEST_F(LaunchHang, IsNobodysBusinessWhenItIsOff) {
    Launch job(folder_, words_of(Drill{.fault = "sleep"}, {"--on-hang=off"}));
    ASSERT_TRUE(job.wait_for_output("now"));
    std::this_thread::sleep_for(1500ms);
    job.signal(SIGTERM);
    EXPECT_THAT(job.wait().err, Not(HasSubstr("holds up")));
}

// Where the kernel lets this user have a freezer.
TEST_F(LaunchHang, OfAFrozenCgroupIsSeen) {
    const std::string cgroup = "/sys/fs/cgroup/freezer/ddp-test-" + std::to_string(::getpid());
    if (::mkdir(cgroup.c_str(), 0700) != 0) GTEST_SKIP() << "no cgroup can be made";
    Words words = words_of(Drill{.fault = "freeze"}, {"--on-hang=stop", "--hang-timeout=0"});
    words.push_back(cgroup);
    Launch job(folder_, words);
    EXPECT_TRUE(job.wait_for_error("is frozen, with its cgroup"));
    EXPECT_TRUE(job.wait_for_error("stopping the job"));
    EXPECT_EQ(count(job.err(), "is frozen, with its cgroup"), 1)
        << "who reads its stack is no debugger: " << job.err();
    std::ofstream(cgroup + "/freezer.state") << "THAWED" << std::endl;
    EXPECT_NE(job.wait().exit_code, 0);
    ::rmdir(cgroup.c_str());
}

}  // namespace
}  // namespace ddp::launcher::testing
