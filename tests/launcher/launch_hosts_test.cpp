// Jobs of several hosts, which are network namespaces: one ddp-launch on each, real workers.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // hosts_fixture.hpp
using Clock = std::chrono::steady_clock;

class LaunchHosts : public HostsTest {};

std::vector<std::string> sorted_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    std::ranges::sort(lines);
    return lines;
}

const std::string places =
    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
    "$ROLE_RANK/$ROLE_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $DDP_HOST_ADDR $DDP_ROUND";

TEST_F(LaunchHosts, RanksOfAStaticJobFollowNodeRanksAndSizes) {
    HostWorld world(3);
    HostProgram third = launch_static(world, 3, 1, bash(places));
    HostProgram second = launch_static(world, 2, 2, bash(places));
    HostProgram first = launch_static(world, 1, 1, bash(places));
    const HostProgramResult on_first = first.wait();
    EXPECT_EQ(on_first.exit_code, 0) << on_first.err;
    EXPECT_EQ(on_first.out, "0/4 0/1 0/3 0/4 h1:29500 10.77.0.1 1\n");
    EXPECT_THAT(on_first.err, HasSubstr("3 hosts (--nnodes), this is host 0"));
    EXPECT_THAT(sorted_lines(second.wait().out),
                ElementsAre("1/4 0/2 1/3 1/4 h1:29500 10.77.0.2 1",
                            "2/4 1/2 1/3 2/4 h1:29500 10.77.0.2 1"));
    EXPECT_EQ(third.wait().out, "3/4 0/1 2/3 3/4 h1:29500 10.77.0.3 1\n");
    EXPECT_EQ(std::ranges::count(third.err(), '\n'), 1) << third.err();
    EXPECT_EQ(std::ranges::count(on_first.err, '\n'), 2) << "no token, too: " << on_first.err;
    EXPECT_EQ(second.wait().exit_code, 0);
    EXPECT_EQ(third.wait().exit_code, 0);
}

TEST_F(LaunchHosts, AnElasticJobBeginsAtOnceWithTheMostHosts) {
    HostWorld world(3);
    const Words options{"--nnodes=1:3", "--rdzv-backend=c10d", "--rdzv-endpoint=h2:29400",
                        "--rdzv-id=job7"};
    std::vector<HostProgram> launchers;
    for (const int host : {3, 1, 2}) {
        launchers.push_back(
            launch(world, host, options, bash("echo $RANK/$WORLD_SIZE $TORCHELASTIC_RUN_ID")));
    }
    EXPECT_EQ(launchers[0].wait(10s).out, "2/3 job7\n") << launchers[0].err();
    EXPECT_EQ(launchers[1].wait(10s).out, "1/3 job7\n") << "by name, after the endpoint's";
    EXPECT_EQ(launchers[2].wait(10s).out, "0/3 job7\n");
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait().exit_code, 0);
}

// On the coordinator's terminal.
TEST_F(LaunchHosts, TheStatusLineIsThatOfAllHosts) {
    HostWorld world(3);
    const Words worker{DDP_TEST_WORKER, "publish_progress", "7", "3"};
    HostProgram head = world.run(1,
                                 {"script", "-qec",
                                  "stty cols 120; exec " DDP_LAUNCH
                                  " --nnodes=3 --node-rank=0 --master-addr=h1 --nproc-per-node=2 "
                                  "-- " DDP_TEST_WORKER " publish_progress 9 4",
                                  "/dev/null"},
                                 {"TERM=xterm", "TMPDIR=" + files_.path()});
    std::vector<HostProgram> others;
    for (const int host : {2, 3}) others.push_back(launch_static(world, host, 2, worker));
    EXPECT_TRUE(head.wait_for_output("ddp-launch: 3 hosts, 6/6 ranks up, 0:0")) << head.out();
    EXPECT_TRUE(head.wait_for_output("step 7, 3.00 steps/s")) << head.out();
    EXPECT_THAT(others[0].err(), Not(HasSubstr("ranks up")));
}

TEST_F(LaunchHosts, TheInputOfARanksHostIsItsInput) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world, bash("echo $RANK got $(cat)"), {"--stdin=3"});
    launchers[0].write("of h1");
    launchers[1].write("of h2");
    for (HostProgram& one : launchers) one.close_input();
    EXPECT_EQ(launchers[0].wait(20s).exit_code, 0) << launchers[0].err();
    EXPECT_EQ(launchers[1].wait(20s).exit_code, 0) << launchers[1].err();
    EXPECT_THAT(launchers[0].out(), AllOf(HasSubstr("0 got\n"), HasSubstr("1 got\n")));
    EXPECT_THAT(launchers[1].out(), AllOf(HasSubstr("2 got\n"), HasSubstr("3 got of h2\n")));
}

TEST_F(LaunchHosts, ARankThatTheJobLacksIsSaid) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world, bash("true"), {"--stdin=7", "--ranks-filter=0,4"});
    for (HostProgram& one : launchers) {
        EXPECT_EQ(one.wait(20s).exit_code, 0) << one.err();
        EXPECT_THAT(one.err(),
                    AllOf(HasSubstr("--stdin: the job has no rank 7; they go from 0 to 3\n"),
                          HasSubstr("--ranks-filter: the job has no rank 4")));
    }
}

// The first failure ends all; each launcher returns its code.
TEST_F(LaunchHosts, AFailureAnywhereEndsTheWholeJob) {
    HostWorld world(3);
    const Clock::time_point start = Clock::now();
    std::vector<HostProgram> launchers = launch_all(
        world, bash("if [ $RANK = 5 ]; then echo no data >&2; sleep 0.3; exit 7; fi; sleep 60"));
    for (HostProgram& launcher : launchers) {
        EXPECT_EQ(launcher.wait(20s).exit_code, 7) << launcher.err();
    }
    EXPECT_LT(Clock::now() - start, 15s);
    const std::string headline = "rank 5 (local rank 1, pid ";
    for (const int host : {1, 3}) {
        const std::string& said = launchers[static_cast<std::size_t>(host - 1)].err();
        EXPECT_THAT(said, AllOf(HasSubstr(headline), HasSubstr("failed: exit code 7"),
                                HasSubstr("host h3"), HasSubstr("stderr   no data")));
    }
    EXPECT_THAT(launchers[1].err(), AllOf(HasSubstr(headline), HasSubstr("on host h3"),
                                          Not(HasSubstr("stderr   no data"))));
    for (int host = 1; host <= 3; ++host) EXPECT_EQ(world.count_on(host, "sleep"), 0);
}

TEST_F(LaunchHosts, AFailedJobStartsAnewOnAllHostsWhileRestartsAreLeft) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world,
                   bash("echo $RANK $TORCHELASTIC_RESTART_COUNT $DDP_ROUND; "
                        "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 3 ] && exit 5; "
                        "sleep 60"),
                   {"--max-restarts=2"});
    EXPECT_EQ(launchers[0].wait(20s).exit_code, 0) << launchers[0].err();
    EXPECT_EQ(launchers[1].wait(20s).exit_code, 0) << launchers[1].err();
    EXPECT_THAT(sorted_lines(launchers[1].out()), ElementsAre("2 0 1", "2 1 2", "3 0 1", "3 1 2"));
    EXPECT_THAT(launchers[0].err(), HasSubstr("restart 1 of 2"));
}

// However many hosts there are: the bits of one.
TEST_F(LaunchHosts, TrainingOnSeveralHostsGivesTheBitsOfOne) {
    const Words train{DDP_TRAIN_DIGITS, "--epochs", "2", "--logical-ranks", "8"};
    HostWorld world(4);
    HostProgram alone = launch(world, 1, {"--nproc-per-node=2"}, train);
    ASSERT_EQ(alone.wait(60s).exit_code, 0) << alone.err();
    for (const int hosts : {2, 4}) {
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= hosts; ++host) {
            launchers.push_back(launch(
                world, host,
                {"--nnodes=" + std::to_string(hosts), "--node-rank=" + std::to_string(host - 1),
                 "--master-addr=h1", "--nproc-per-node=" + std::to_string(4 / hosts)},
                train));
        }
        for (HostProgram& launcher : launchers) {
            EXPECT_EQ(launcher.wait(60s).exit_code, 0) << launcher.err();
        }
        EXPECT_EQ(weights_in(launchers.front().out()), weights_in(alone.out()));
    }
}

// Loss -------------------------------------------------------------------------------------------

constexpr int cut_off = 84;
const std::string sleep_long = "echo up; exec sleep 60";

TEST_F(LaunchHosts, AHostWhoseLauncherIsKilledEndsTheJob) {
    HostWorld world(3);
    std::vector<HostProgram> launchers = launch_all(world, bash(sleep_long));
    for (HostProgram& launcher : launchers) ASSERT_TRUE(launcher.wait_for_output("up", 2));
    const Clock::time_point killed = Clock::now();
    std::vector<pid_t> launcher_of_2 = world.pids_on(2);
    std::erase_if(launcher_of_2, [](pid_t pid) { return !comm_of(pid).starts_with("ddp-"); });
    kill_at_once(launcher_of_2);
    for (const int host : {1, 3}) {
        HostProgram& launcher = launchers[static_cast<std::size_t>(host - 1)];
        EXPECT_TRUE(launcher.wait_for_error("lost h2 (10.77.0.2), ranks 2-3: its agent has gone"))
            << launcher.err();
        EXPECT_EQ(launcher.wait(20s).exit_code, cut_off);
        EXPECT_THAT(launcher.err(), HasSubstr("host h2 was lost"));
        EXPECT_EQ(world.count_on(host, "sleep"), 0);
    }
    EXPECT_LT(Clock::now() - killed, 15s);
}

TEST_F(LaunchHosts, AHostWithoutPowerIsNamedSoonAndLostLater) {
    HostWorld world(3);
    std::vector<HostProgram> launchers = launch_all(world, bash(sleep_long), {"--node-timeout=2"});
    for (HostProgram& launcher : launchers) ASSERT_TRUE(launcher.wait_for_output("up", 2));
    world.power_off(3);
    for (const int host : {1, 2}) {
        HostProgram& launcher = launchers[static_cast<std::size_t>(host - 1)];
        EXPECT_TRUE(launcher.wait_for_error("no answer from h3 (10.77.0.3), ranks 4-5"))
            << launcher.err();
        EXPECT_TRUE(launcher.wait_for_error("lost h3 (10.77.0.3), ranks 4-5: no answer for 2 s"));
        EXPECT_EQ(launcher.wait(20s).exit_code, cut_off) << launcher.err();
        EXPECT_EQ(world.count_on(host, "sleep"), 0);
    }
}

TEST_F(LaunchHosts, AHostThatIsCutOffKillsItsWorkersAndSaysWhy) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world, bash("trap '' TERM; " + sleep_long), {"--node-timeout=2"});
    for (HostProgram& launcher : launchers) ASSERT_TRUE(launcher.wait_for_output("up", 2));
    world.cut(2);
    EXPECT_EQ(launchers[1].wait(20s).exit_code, cut_off);
    EXPECT_THAT(launchers[1].err(),
                HasSubstr("this host has lost its job: the coordinator has not "
                          "answered for too long (the coordinator at h1:29500)"));
    EXPECT_EQ(world.count_on(2, "sleep"), 0);
}

TEST_F(LaunchHosts, WithoutTheCoordinatorsHostTheOthersEnd) {
    HostWorld world(3);
    std::vector<HostProgram> launchers = launch_all(world, bash(sleep_long), {"--node-timeout=2"});
    for (HostProgram& launcher : launchers) ASSERT_TRUE(launcher.wait_for_output("up", 2));
    world.power_off(1);
    for (const int host : {2, 3}) {
        HostProgram& launcher = launchers[static_cast<std::size_t>(host - 1)];
        EXPECT_EQ(launcher.wait(20s).exit_code, cut_off) << launcher.err();
        EXPECT_THAT(launcher.err(), HasSubstr("no answer from the coordinator at h1:29500"));
        EXPECT_EQ(world.count_on(host, "sleep"), 0);
    }
}

TEST_F(LaunchHosts, AShortCutAndAStoppedAgentLoseNobody) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world, bash("echo up; for i in $(seq 60); do sleep 0.1; done"));
    for (HostProgram& launcher : launchers) ASSERT_TRUE(launcher.wait_for_output("up", 2));
    world.cut(2);
    std::this_thread::sleep_for(500ms);
    world.mend(2);
    world.freeze(2);
    std::this_thread::sleep_for(3s);
    world.thaw(2);
    EXPECT_EQ(launchers[0].wait(30s).exit_code, 0) << launchers[0].err();
    EXPECT_EQ(launchers[1].wait(30s).exit_code, 0) << launchers[1].err();
}

// Elastic ----------------------------------------------------------------------------------------

const Words one_to_three{"--nnodes=1:3", "--rdzv-backend=c10d", "--rdzv-endpoint=h1:29400",
                         "--rdzv-conf=last_call_timeout=0.3", "--node-timeout=2"};
// Ends once the world has the size that $1 says.
Words until_size(int size) {
    return bash(
        "echo round $DDP_ROUND of $WORLD_SIZE restarts $TORCHELASTIC_RESTART_COUNT; "
        "[ $WORLD_SIZE = " +
        std::to_string(size) + " ] && exit 0; exec sleep 60");
}

TEST_F(LaunchHosts, AnElasticJobGrowsAsHostsCome) {
    HostWorld world(3);
    HostProgram first = launch(world, 1, one_to_three, until_size(3));
    ASSERT_TRUE(first.wait_for_output("round 1 of 1 restarts 0")) << first.err();
    HostProgram second = launch(world, 2, one_to_three, until_size(3));
    ASSERT_TRUE(first.wait_for_output("round 2 of 2 restarts 0")) << first.err();
    HostProgram third = launch(world, 3, one_to_three, until_size(3));
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
    EXPECT_EQ(second.wait(20s).exit_code, 0) << second.err();
    EXPECT_EQ(third.wait(20s).exit_code, 0) << third.err();
    EXPECT_EQ(third.out(), "round 3 of 3 restarts 0\n");
}

TEST_F(LaunchHosts, AnElasticJobGoesOnWithoutALostHost) {
    HostWorld world(3);
    std::vector<HostProgram> launchers;
    for (int host = 1; host <= 3; ++host) {
        launchers.push_back(launch(world, host, one_to_three, until_size(2)));
    }
    for (HostProgram& launcher : launchers) {
        ASSERT_TRUE(launcher.wait_for_output("round 1 of 3")) << launcher.err();
    }
    world.power_off(2);
    EXPECT_EQ(launchers[0].wait(20s).exit_code, 0) << launchers[0].err();
    EXPECT_EQ(launchers[2].wait(20s).exit_code, 0) << launchers[2].err();
    EXPECT_THAT(launchers[0].out(), HasSubstr("round 2 of 2 restarts 0"));
}

TEST_F(LaunchHosts, AHostThatIsToldToStopLeavesAnElasticJob) {
    HostWorld world(2);
    HostProgram first = launch(world, 1, one_to_three, until_size(1));
    HostProgram second = launch(world, 2, one_to_three, until_size(1));
    if (!first.wait_for_output("of 2")) GTEST_FAIL() << first.err();
    ASSERT_TRUE(second.wait_for_output("of 2")) << second.err();
    second.signal(SIGTERM);
    EXPECT_EQ(second.wait(20s).exit_code, 128 + SIGTERM) << second.err();
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
    EXPECT_THAT(first.err(), HasSubstr("leaves the job"));
}

TEST_F(LaunchHosts, AStaticJobThatIsToldToStopAnywhereEndsEverywhere) {
    for (const std::size_t told : {0U, 1U}) {
        HostWorld world(2);
        std::vector<HostProgram> launchers = launch_all(world, bash(sleep_long));
        for (HostProgram& launcher : launchers) ASSERT_TRUE(launcher.wait_for_output("up", 2));
        launchers[told].signal(SIGINT);
        for (HostProgram& launcher : launchers) {
            EXPECT_EQ(launcher.wait(20s).exit_code, 128 + SIGINT) << launcher.err();
        }
        EXPECT_THAT(launchers[0].err(), HasSubstr("stopped by SIGINT"));
    }
}

// Joining ----------------------------------------------------------------------------------------

TEST_F(LaunchHosts, AHostOfAnotherJobIsRefusedWithBothNames) {
    HostWorld world(2);
    const Words options{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h1:29400"};
    const auto with = [&](const std::string& more) {
        Words all = options;
        all.push_back(more);
        return all;
    };
    HostProgram first = launch(world, 1, with("--rdzv-id=a"), bash("true"));
    HostProgram stranger = launch(world, 2, with("--rdzv-id=b"), bash("true"));
    EXPECT_EQ(stranger.wait(10s).exit_code, 2);
    const std::string why = "host h2 (10.77.0.2): its --rdzv-id is \"b\", that of h1 is \"a\"";
    EXPECT_THAT(stranger.err(), HasSubstr(why));
    EXPECT_TRUE(first.wait_for_error(why));
    HostProgram second = launch(world, 2, with("--rdzv-id=a"), bash("true"));
    EXPECT_EQ(second.wait(10s).exit_code, 0) << second.err();
    EXPECT_EQ(first.wait(10s).exit_code, 0);
}

TEST_F(LaunchHosts, ANodeRankThatIsTakenIsRefusedWithBothHosts) {
    HostWorld world(3);
    HostProgram first = launch_static(world, 1, 1, bash("true"));
    HostProgram second = launch_static(world, 2, 1, bash("true"));
    ASSERT_FALSE(second.wait(500ms).exit_code == 2) << second.err();
    HostProgram third = launch_static(world, 3, 1, bash("true"), {"--node-rank=1"});
    EXPECT_EQ(third.wait(10s).exit_code, 2);
    EXPECT_THAT(third.err(), HasSubstr("node rank 1 of h3 is h2 (10.77.0.2)'s already"));
}

TEST_F(LaunchHosts, AJobThatDoesNotGatherSaysWhoIsThere) {
    HostWorld world(2);
    const Words soon{"--rdzv-conf=timeout=1"};
    HostProgram first = launch_static(world, 1, 1, bash("true"), soon);
    EXPECT_EQ(first.wait(10s).exit_code, 1);
    EXPECT_THAT(first.err(), HasSubstr("only 1 of at least 2 hosts came within 1 s: h1"));
    HostProgram second = launch_static(world, 2, 1, bash("true"), soon);
    EXPECT_EQ(second.wait(10s).exit_code, 1);
    EXPECT_THAT(second.err(), AllOf(HasSubstr("no coordinator at h1:29500 within 1 s"),
                                    HasSubstr("Connection refused")));
}

TEST_F(LaunchHosts, APortInUseOnTheHeadIsSaidBeforeAnythingStarts) {
    HostWorld world(2);
    HostProgram other = world.run(
        1, {"python3", "-c",
            "import socket, time; s = socket.create_server(('', 29500)); print('up', flush=True); "
            "time.sleep(60)"});
    ASSERT_TRUE(other.wait_for_output("up"));
    HostProgram first = launch_static(world, 1, 1, bash("true"));
    EXPECT_EQ(first.wait(10s).exit_code, 2);
    EXPECT_THAT(first.err(), HasSubstr("port 29500 on h1, where the hosts are to meet, is in use"));
}

TEST_F(LaunchHosts, LogFilesOfAllHostsLieInOneFolderOfTheRun) {
    HostWorld world(2);
    std::vector<HostProgram> launchers = launch_all(
        world, bash("echo rank $RANK"), {"--rdzv-id=run", "--log-dir=" + files_.path() + "/logs"});
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait(20s).exit_code, 0);
    namespace fs = std::filesystem;
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(files_.path() + "/logs")) {
        const std::string path = entry.path();
        if (!path.ends_with("stdout.log") && !path.ends_with("report.json")) continue;
        const fs::path in_run = fs::relative(path, files_.path() + "/logs");
        std::string rest;
        for (auto part = std::next(in_run.begin()); part != in_run.end(); ++part) {
            rest += "/" + part->string();
        }
        found.push_back(rest);
    }
    std::ranges::sort(found);
    EXPECT_THAT(found, ElementsAre("/h1/attempt_0/0/stdout.log", "/h1/attempt_0/1/stdout.log",
                                   "/h2/attempt_0/0/stdout.log", "/h2/attempt_0/1/stdout.log",
                                   "/report.json"));
}

TEST_F(LaunchHosts, TheReportTellsOfAllHosts) {
    HostWorld world(2);
    std::vector<HostProgram> launchers =
        launch_all(world, bash("[ $RANK = 3 ] && exit 9; exec sleep 60"),
                   {"--rdzv-id=run", "--log-dir=" + files_.path() + "/logs"});
    for (HostProgram& launcher : launchers) EXPECT_EQ(launcher.wait(20s).exit_code, 9);
    std::string file;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(files_.path())) {
        if (entry.path().filename() == "report.json") file = entry.path();
    }
    std::ifstream stream(file);
    const auto report = nlohmann::json::parse(stream);
    EXPECT_EQ(report["outcome"], "failed");
    EXPECT_EQ(report["root_rank"], 3);
    EXPECT_EQ(report["host"], "h1");
    ASSERT_EQ(report["workers"].size(), 4U);
    EXPECT_EQ(report["workers"][3]["host"], "h2");
    EXPECT_EQ(report["workers"][3]["part"], "root_cause");
    EXPECT_EQ(report["workers"][0]["part"], "stopped");
}

// Where a job comes from ------------------------------------------------------------------------

// What srun -N3 --ntasks-per-node=1 gives its tasks.
TEST_F(LaunchHosts, AStepOfSlurmIsOneJobWithoutAnOption) {
    HostWorld world(3);
    std::vector<HostProgram> launchers;
    for (int host = 1; host <= 3; ++host) {
        launchers.push_back(
            launch(world, host, {}, bash("echo $RANK/$WORLD_SIZE $MASTER_PORT"),
                   {.environment = {"SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=3",
                                    "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NODELIST=h[1-3]",
                                    "SLURM_NODEID=" + std::to_string(host - 1)}}));
    }
    for (int host = 1; host <= 3; ++host) {
        HostProgram& launcher = launchers[static_cast<std::size_t>(host - 1)];
        EXPECT_EQ(launcher.wait(20s).exit_code, 0) << launcher.err();
        EXPECT_EQ(launcher.out(), std::to_string(host - 1) + "/3 20012\n");
    }
    EXPECT_THAT(launchers[1].err(),
                HasSubstr("3 hosts of Slurm step 12.0 (SLURM_STEP_NUM_NODES), this is host 1"));
}

// As those of examples/kubernetes, whose Service knows a pod a while after it has started.
TEST_F(LaunchHosts, PodsFindTheFirstOneWhenItsNameIsKnown) {
    HostWorld world(3);
    std::vector<HostProgram> pods;
    for (int pod = 2; pod >= 0; --pod) {
        pods.push_back(
            launch(world, pod + 1, {}, bash("echo $RANK/$WORLD_SIZE"),
                   {.environment = {"JOB_COMPLETION_INDEX=" + std::to_string(pod), "PET_NNODES=3",
                                    "PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR=train-0.train",
                                    "PET_MASTER_PORT=29500"}}));
    }
    EXPECT_TRUE(pods[0].wait_for_error("waits for the coordinator at train-0.train:29500"))
        << pods[0].err();
    for (int host = 1; host <= world.size(); ++host) {
        HostProgram name = world.run(host, bash("echo 10.77.0.1 train-0.train >>/etc/hosts"));
        EXPECT_EQ(name.wait(20s).exit_code, 0) << name.err();
    }
    for (int pod = 0; pod < 3; ++pod) {
        HostProgram& program = pods[static_cast<std::size_t>(2 - pod)];
        EXPECT_EQ(program.wait(60s).exit_code, 0) << program.err();
        EXPECT_EQ(program.out(), std::to_string(pod) + "/3\n");
    }
}

// By address, and by a name that is not the host's own.
TEST_F(LaunchHosts, TheHeadIsTheHeadByWhateverNameItIsCalled) {
    for (const std::string endpoint : {"10.77.0.2:29400", "[fd77::2]:29400", "h2-v6:29400"}) {
        HostWorld world(2);
        const Words options{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint};
        HostProgram first = launch(world, 1, options, bash("echo $RANK"));
        HostProgram head = launch(world, 2, options, bash("echo $RANK"));
        EXPECT_EQ(head.wait(20s).out, "0\n") << head.err();
        EXPECT_EQ(first.wait(20s).out, "1\n") << first.err();
    }
}

// A name that nobody knows yet is no error: it is looked up again.
TEST_F(LaunchHosts, AHeadThatIsNotKnownYetIsWaitedFor) {
    HostWorld world(2);
    const Words options{"--nnodes=2", "--node-rank=1", "--master-addr=h9", "--rdzv-conf=timeout=1"};
    HostProgram second = launch(world, 2, options, bash("true"));
    EXPECT_EQ(second.wait(20s).exit_code, 1);
    EXPECT_THAT(second.err(), HasSubstr("no coordinator at h9:29500 within 1 s"));
}

// Leaving closes nothing: who left may come again, and no restart is used.
TEST_F(LaunchHosts, AHostThatLeftComesAgain) {
    HostWorld world(2);
    HostProgram first = launch(world, 1, one_to_three, until_size(9));
    for (int time = 1; time <= 2; ++time) {
        HostProgram second = launch(world, 2, one_to_three, until_size(9));
        ASSERT_TRUE(first.wait_for_output("of 2 restarts 0", time)) << first.err();
        ASSERT_TRUE(second.wait_for_output("of 2 restarts 0")) << second.err();
        second.signal(SIGTERM);
        EXPECT_EQ(second.wait(20s).exit_code, 128 + SIGTERM);
        ASSERT_TRUE(first.wait_for_output("of 1 restarts 0", time)) << first.out() << first.err();
    }
    first.signal(SIGINT);
    EXPECT_EQ(first.wait(20s).exit_code, 128 + SIGINT);
}

}  // namespace
}  // namespace ddp::launcher
