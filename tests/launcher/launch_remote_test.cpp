// Jobs of several hosts that one command starts: ddp-launch --hosts on the first, over a stand-in
// for ssh.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // hosts_fixture.hpp
using Clock = std::chrono::steady_clock;

class LaunchRemote : public HostsTest {
protected:
    // ddp-launch on host 1.
    HostProgram start(HostWorld& world, Words options, const Words& command,
                      Words environment = {}) {
        options.insert(options.begin(), "--rsh=" + world.rsh());
        return launch(world, 1, options, command, {.environment = std::move(environment)});
    }
    std::string script(const std::string& name, const std::string& text) const {
        const std::string path = files_.path() + "/" + name;
        std::ofstream(path) << "#!/bin/sh\n" << text;
        ::chmod(path.c_str(), S_IRWXU);
        return path;
    }
};

std::vector<std::string> sorted_lines(const std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    std::ranges::sort(lines);
    return lines;
}

// Nothing is left on any host. Waits, not for long.
void expect_empty(HostWorld& world) {
    const Clock::time_point until = Clock::now() + 20s;
    std::size_t left = 1;
    while (left > 0 && Clock::now() < until) {
        left = 0;
        for (int host = 1; host <= world.size(); ++host) left += world.pids_on(host).size();
    }
    EXPECT_EQ(left, 0U);
}

TEST_F(LaunchRemote, OneCommandStartsTheJobOnAllHosts) {
    HostWorld world(3);
    HostProgram job =
        start(world, {"--hosts=h1:1,h2:2,h3:1"},
              bash("echo $(hostname) $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                   "$GROUP_RANK $MASTER_ADDR:$MASTER_PORT $DDP_HOST_ADDR; echo err$RANK "
                   ">&2"));
    const HostProgramResult result = job.wait(30s);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(sorted_lines(result.out),
                ElementsAre("h1 0/4 0/1 0 h1:29500 10.77.0.1", "h2 1/4 0/2 1 h1:29500 10.77.0.2",
                            "h2 2/4 1/2 1 h1:29500 10.77.0.2", "h3 3/4 0/1 2 h1:29500 10.77.0.3"));
    EXPECT_THAT(sorted_lines(result.err),
                ElementsAre("ddp-launch: 3 hosts (--hosts): h1, h2, h3; head h1, port 29500",
                            "err0", "err1", "err2", "err3"));
    expect_empty(world);
}

TEST_F(LaunchRemote, TheLastWorkerStartsSoon) {
    HostWorld world(3);
    world.rsh();
    const auto begun = std::chrono::system_clock::now();
    HostProgram job = start(world, {"--hosts=h1:2,h2:2,h3:2"}, {"date", "+%s%N"});
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    const std::vector<std::string> times = sorted_lines(job.out());
    ASSERT_EQ(times.size(), 6U) << job.out();
    const std::chrono::nanoseconds last(std::stoll(times.back()));
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(last - begun.time_since_epoch());
    RecordProperty("ms_until_the_last_worker", static_cast<int>(took.count()));
    EXPECT_LT(took, 10s);
}

// 32 at a time, each of 0.2 s: 32 times that is what it takes at least. The stand-in starts nothing.
TEST_F(LaunchRemote, SoakAThousandShellsStartInEightSeconds) {
    HostWorld world(1);
    const auto begun = Clock::now();
    HostProgram job = launch(
        world, 1,
        {"--hosts=n[0001-1000]", std::string("--rsh=") + DDP_STAND_IN_SHELL, "--master-addr=h1"},
        {"true"});
    EXPECT_EQ(job.wait(60s).exit_code, 0) << job.err();
    const std::chrono::duration<double> took = Clock::now() - begun;
    std::printf("1000 shells in %.2f s; 32 at a time can take 6.4 s\n", took.count());
    EXPECT_LE(took, 8s);
}

// The job ---------------------------------------------------------------------------------------

TEST_F(LaunchRemote, AHostfileSaysTheSame) {
    HostWorld world(2);
    std::ofstream(files_.path() + "/hosts") << "h2 slots=2\nh1\n";
    HostProgram job = start(world, {"--hostfile=" + files_.path() + "/hosts"},
                            bash("echo $(hostname) $RANK/$WORLD_SIZE"));
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_THAT(sorted_lines(job.out()), ElementsAre("h1 2/3", "h2 0/3", "h2 1/3"));
}

TEST_F(LaunchRemote, AJobOfOneOtherHostNeedsNoPort) {
    HostWorld world(2);
    HostProgram job = start(world, {"--hosts=h2"}, bash("echo $(hostname) $WORLD_SIZE; cat"));
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_EQ(job.out(), "h2 1\n");
}

TEST_F(LaunchRemote, AFailureGivesTheJobsExitCodeAndOneReport) {
    HostWorld world(3);
    HostProgram job = start(world, {"--hosts=h1:1,h2:1,h3:1"},
                            bash("[ $RANK = 1 ] && { echo no data >&2; exit 7; }; exec sleep 60"));
    const HostProgramResult result = job.wait(30s);
    EXPECT_EQ(result.exit_code, 7) << result.err;
    // The line that tells of the report on another host may come before it.
    EXPECT_LE(count_of(result.err, "failed: exit code 7"), 2) << result.err;
    EXPECT_EQ(count_of(result.err, "failed: exit code 7\n"), 1) << result.err;
    EXPECT_EQ(count_of(result.err, "stderr   no data"), 1) << result.err;
    expect_empty(world);
}

TEST_F(LaunchRemote, WhatEveryHostSaysIsShownOnce) {
    HostWorld world(3);
    HostProgram job = start(world, {"--hosts=h1:2,h2:2,h3:2", "--rdzv-id=run"},
                            bash("echo $OMP_NUM_THREADS"), {"OMP_NUM_THREADS="});
    HostProgram unset =
        world.run(1, {"env", "-u", "OMP_NUM_THREADS", DDP_LAUNCH, "--rsh=" + world.rsh(),
                      "--hosts=h1:2,h2:2,h3:2", "--master-port=29501", "bash", "-c",
                      "echo $OMP_NUM_THREADS"});
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_EQ(count_of(job.err(), "OMP_NUM_THREADS"), 0) << job.err();
    EXPECT_EQ(unset.wait(30s).exit_code, 0) << unset.err();
    EXPECT_EQ(count_of(unset.err(), "OMP_NUM_THREADS"), 1) << unset.err();
    EXPECT_EQ(unset.out(), "1\n1\n1\n1\n1\n1\n");
}

TEST_F(LaunchRemote, HostsHaveTheVariablesThatProgramsNeedAndThoseThatAreNamed) {
    HostWorld world(2);
    HostProgram job = start(
        world, {"--hosts=h1,h2", "--env=MINE", "--env=GIVEN=a b", "--env=LINES=x\ny"},
        bash("echo $RANK $MINE/$GIVEN/$NCCL_X/$OTHER/$HF_X/$DDP_ROUND; [ \"$LINES\" = $'x\\ny' ]"),
        {"MINE=1", "OTHER=2", "NCCL_X=3", "HF_X=4", "DDP_ROUND=7", "RANK=9", "PET_NNODES=5"});
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_THAT(sorted_lines(job.out()), ElementsAre("0 1/a b/3//4/1", "1 1/a b/3//4/1"));
}

TEST_F(LaunchRemote, HostsWorkInTheFolderOfTheStart) {
    HostWorld world(2);
    HostProgram job = world.run(1, {"bash", "-c",
                                    "cd " + files_.path() + " && exec " DDP_LAUNCH " --rsh='" +
                                        world.rsh() + "' --hosts=h1,h2 pwd"});
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_EQ(job.out(), files_.path() + "\n" + files_.path() + "\n");
}

TEST_F(LaunchRemote, AFolderThatAHostLacksIsNamed) {
    HostWorld world(3);
    HostProgram job =
        world.run(1, {"bash", "-c",
                      "mkdir /dev/shm/mine && cd /dev/shm/mine && exec " DDP_LAUNCH " --rsh='" +
                          world.rsh() + "' --hosts=h1,h2,h3 true"});
    EXPECT_EQ(job.wait(30s).exit_code, 1) << job.err();
    EXPECT_THAT(job.err(), AllOf(HasSubstr("2 of 3 hosts have failed"),
                                 HasSubstr("h2, h3: the folder /dev/shm/mine, in which the job was "
                                           "started, cannot be used here: No such file")));
    EXPECT_EQ(job.out(), "");
    expect_empty(world);
}

// Refusals --------------------------------------------------------------------------------------

TEST_F(LaunchRemote, AHostThatComesTwiceIsRefusedBeforeAnythingStarts) {
    HostWorld world(1);
    HostProgram job = start(world, {"--hosts=h1,h2,h1"}, bash("echo up"));
    EXPECT_EQ(job.wait(30s).exit_code, 2);
    EXPECT_EQ(count_of(job.err(), "\n"), 1);
    EXPECT_THAT(job.err(), HasSubstr("h1 comes a second time"));
}

TEST_F(LaunchRemote, AProgramThatIsNotThereIsOneLineAndItsCode) {
    HostWorld world(2);
    HostProgram job = start(world, {"--hosts=h1,h2"}, {"./nowhere"});
    EXPECT_EQ(job.wait(30s).exit_code, 127);
    EXPECT_THAT(job.err(), HasSubstr("h1, h2: program \"./nowhere\" not found"));
    expect_empty(world);
}

TEST_F(LaunchRemote, HostsThatCannotBeReachedAreNamedAndNothingRuns) {
    HostWorld world(3);
    world.power_off(3);
    std::string hosts = "h1,h2,h3";
    for (int i = 0; i < 40; ++i) hosts += ",x" + std::to_string(i);
    HostProgram job = start(world, {"--hosts=" + hosts}, bash("echo up"));
    const HostProgramResult result = job.wait(30s);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("ddp-launch: the job was not started: 41 of 43 hosts have failed"),
                      HasSubstr("ddp-launch: h3: rsh: connect to host h3: No route to host (exit "
                                "code 255)\n"),
                      HasSubstr("ddp-launch: x39: rsh: Could not resolve hostname x39")));
    expect_empty(world);
}

TEST_F(LaunchRemote, AnRshThatIsNotThereIsNamed) {
    HostWorld world(1);
    HostProgram job = start(world, {"--hosts=h1,h2", "--rsh=/nowhere/ssh -x"}, bash("echo up"));
    EXPECT_EQ(job.wait(30s).exit_code, 1);
    EXPECT_THAT(job.err(), HasSubstr("h1, h2: cannot run /nowhere/ssh: No such file or directory"));
}

TEST_F(LaunchRemote, ADryRunStartsNothing) {
    HostWorld world(1);
    HostProgram job = start(world, {"--hosts=h8,h9", "--dry-run"}, bash("echo up"));
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_THAT(job.out(), AllOf(HasSubstr("h9\n"), HasSubstr("--node-rank=1")));
}

TEST_F(LaunchRemote, WithoutAJobOnItsInputTheOtherEndSaysWhatItIs) {
    HostWorld world(1);
    HostProgram remote = world.run(1, {DDP_LAUNCH, "--from-stdin"});
    remote.write("GET / HTTP/1.0\r\n\r\n");
    remote.close_input();
    EXPECT_EQ(remote.wait(30s).exit_code, 1);
    EXPECT_THAT(remote.err(), HasSubstr("ddp-launch: "));
    HostProgram silent = world.run(1, {DDP_LAUNCH, "--from-stdin"});
    silent.close_input();
    EXPECT_EQ(silent.wait(30s).exit_code, 1);
    EXPECT_THAT(silent.err(), HasSubstr("standard input has ended before a job had come"));
}

// On a terminal of the command, which may be none of the hosts.
TEST_F(LaunchRemote, TheStatusLineIsThatOfAllHosts) {
    HostWorld world(3);
    HostProgram job =
        world.run(1,
                  {"script", "-qec",
                   "stty cols 120; exec " DDP_LAUNCH " --rsh='" + world.rsh() +
                       "' --hosts=h2:2,h3:3 -- " DDP_TEST_WORKER " publish_progress 7 3",
                   "/dev/null"},
                  {"TERM=xterm", "TMPDIR=" + files_.path()});
    EXPECT_TRUE(job.wait_for_output("ddp-launch: 2 hosts, 5/5 ranks up, 0:0")) << job.out();
    EXPECT_TRUE(job.wait_for_output("step 7, 3.00 steps/s")) << job.out();
    EXPECT_THAT(job.out(), ::testing::Not(HasSubstr("ddp-launch begins")));
}

TEST_F(LaunchRemote, RanksOfAnyHostAreShownAlone) {
    HostWorld world(3);
    HostProgram job = start(world, {"--hosts=h1:2,h2:2,h3:2", "--ranks-filter=0,3"},
                            bash("echo $RANK; echo err$RANK >&2"));
    const HostProgramResult result = job.wait(30s);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(sorted_lines(result.out), ElementsAre("0", "3"));
    EXPECT_THAT(sorted_lines(result.err),
                ElementsAre("ddp-launch: 3 hosts (--hosts): h1, h2, h3; head h1, port 29500",
                            "err0", "err3"));
}

// With fewer hosts ------------------------------------------------------------------------------

const std::string until_round_2 =
    "echo $(hostname) $RANK of $WORLD_SIZE in $DDP_ROUND; [ $DDP_ROUND = 2 ] || exec sleep 60";
const Words of_two_or_three{"--hosts=h1:2,h2:2,h3:2", "--nnodes=2:3", "--node-timeout=2"};

TEST_F(LaunchRemote, AJobThatMayLoseHostsGoesOnWithoutTheFirst) {
    HostWorld world(4);
    Words options = of_two_or_three;
    options.insert(options.begin(), "--rsh=" + world.rsh());
    HostProgram job = launch(world, 4, options, bash(until_round_2));
    ASSERT_TRUE(job.wait_for_output("of 6 in 1", 6)) << job.err();
    world.power_off(1);
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_EQ(count_of(job.out(), "of 4 in 2"), 4) << job.out();
    EXPECT_THAT(job.out(), HasSubstr("h2 0 of 4 in 2"));
    EXPECT_THAT(job.err(), HasSubstr("takes over from the coordinator"));
    expect_empty(world);
}

TEST_F(LaunchRemote, AJobThatMayLoseHostsStartsWithoutOneThatCannotBeReached) {
    HostWorld world(3);
    world.power_off(3);
    Words options = of_two_or_three;
    options.emplace_back("--rdzv-conf=last_call_timeout=1");
    HostProgram job = start(world, options, bash("echo up $WORLD_SIZE"));
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_EQ(count_of(job.out(), "up 4"), 4);
    EXPECT_THAT(job.err(), HasSubstr("the job starts without some of its hosts: 1 of 3 hosts has "
                                     "failed\nddp-launch: h3: rsh: connect to host h3"));
}

TEST_F(LaunchRemote, AJobWithTooFewHostsLeftEnds) {
    HostWorld world(4);
    Words options = of_two_or_three;
    options.insert(options.begin(), {"--rsh=" + world.rsh(), "--shutdown-timeout=1"});
    HostProgram job = launch(world, 4, options, bash(until_round_2));
    ASSERT_TRUE(job.wait_for_output("of 6 in 1", 6)) << job.err();
    world.power_off(3);
    world.power_off(2);
    EXPECT_EQ(job.wait(60s).exit_code, 84) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("too few of"));
    EXPECT_EQ(count_of(job.out(), "in 2"), 0) << job.out();
    expect_empty(world);
}

TEST_F(LaunchRemote, AJobWhoseFirstHostCannotBeReachedIsNotStarted) {
    HostWorld world(4);
    world.power_off(1);
    Words options = of_two_or_three;
    options.insert(options.begin(), "--rsh=" + world.rsh());
    HostProgram job = launch(world, 4, options, bash("echo up"));
    EXPECT_EQ(job.wait(30s).exit_code, 1) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("the job was not started: 1 of 3 hosts has failed"));
    EXPECT_EQ(job.out(), "");
    expect_empty(world);
}

// As ssh does to a host without power.
TEST_F(LaunchRemote, AnRshThatDoesNotEndHidesNoExitCodeOfAJobThatMayLoseHosts) {
    HostWorld world(3);
    const std::string rsh = script("rsh", world.rsh() +
                                              " \"$@\"\ncode=$?\n[ $1 = h2 ] && exec sleep 600\n"
                                              "exit $code\n");
    HostProgram job =
        launch(world, 3, {"--hosts=h1,h2", "--nnodes=1:2", "--node-timeout=2", "--rsh=" + rsh},
               bash("echo of $WORLD_SIZE; [ $WORLD_SIZE = 1 ] && exit 7; exec sleep 60"));
    ASSERT_TRUE(job.wait_for_output("of 2", 2)) << job.err();
    world.power_off(2);
    EXPECT_EQ(job.wait(60s).exit_code, 7) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("the job has ended, but no end has come from h2"));
    expect_empty(world);
}

// Of which its first host learns when it asks the others whether they coordinate.
TEST_F(LaunchRemote, AnotherJobOfTheSameHostsIsNoneOfThisOne) {
    HostWorld world(3);
    HostProgram other = start(world, {"--hosts=h2,h3"}, bash("echo up; exec sleep 60"));
    ASSERT_TRUE(other.wait_for_output("up", 2)) << other.err();
    HostProgram job = start(world, of_two_or_three, bash("echo of $WORLD_SIZE"));
    EXPECT_EQ(job.wait(30s).exit_code, 0) << job.err();
    EXPECT_EQ(count_of(job.out(), "of 6"), 6) << job.out() << job.err();
    other.signal(SIGTERM);
    EXPECT_EQ(other.wait(30s).exit_code, 128 + SIGTERM) << other.err();
}

TEST_F(LaunchRemote, AFailureOfAJobThatMayLoseHostsIsItsExitCode) {
    HostWorld world(3);
    HostProgram job = start(world, of_two_or_three, bash("[ $RANK = 3 ] && exit 7; exec sleep 60"));
    EXPECT_EQ(job.wait(30s).exit_code, 7) << job.err();
    expect_empty(world);
}

// Ends ------------------------------------------------------------------------------------------

// Ignores what asks it to end, and has a child that left its session.
const std::string stubborn =
    "trap '' INT TERM HUP PIPE; setsid sleep 60 & echo up; while :; do sleep 1; done";

TEST_F(LaunchRemote, WhenTheStarterIsKilledNothingIsLeftAnywhere) {
    HostWorld world(3);
    HostProgram job = start(world, {"--hosts=h1:2,h2:2,h3:2", "--max-restarts=3"}, bash(stubborn));
    ASSERT_TRUE(job.wait_for_output("up", 6)) << job.err();
    const Clock::time_point killed = Clock::now();
    job.signal(SIGKILL);
    expect_empty(world);
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - killed);
    RecordProperty("ms_until_all_were_empty", static_cast<int>(time.count()));
    EXPECT_LT(time, 20s);
}

TEST_F(LaunchRemote, WhenTheStarterIsKilledBeforeTheJobBeganNothingIsLeftEither) {
    HostWorld world(3);
    const std::string rsh =
        script("rsh", "[ $1 = h3 ] && exec sleep 60\nexec " + world.rsh() + " \"$@\"\n");
    HostProgram job = start(world, {"--hosts=h1,h2,h3", "--rsh=" + rsh}, bash("echo up"));
    const Clock::time_point until = Clock::now() + 30s;
    while (world.count_on(2, "ddp-agent") + world.count_on(1, "ddp-agent") < 2) {
        ASSERT_LT(Clock::now(), until);
    }
    job.signal(SIGKILL);
    expect_empty(world);
}

TEST_F(LaunchRemote, AProgramOfAHostWhoseLauncherIsKilledEnds) {
    HostWorld world(2);
    HostProgram job = start(world, {"--hosts=h1,h2"}, bash("echo up; exec sleep 60"));
    ASSERT_TRUE(job.wait_for_output("up", 2)) << job.err();
    kill_at_once(world.pids_on(2));
    EXPECT_NE(job.wait(30s).exit_code, 0);
    EXPECT_THAT(job.err(), HasSubstr("lost h2"));
    expect_empty(world);
}

TEST_F(LaunchRemote, CtrlCIsPassedOnToAllHosts) {
    HostWorld world(3);
    HostProgram job = start(
        world, {"--hosts=h1,h2,h3"},
        bash("trap 'echo interrupted $RANK; exit 3' INT; echo up; while :; do sleep 0.1; done"));
    ASSERT_TRUE(job.wait_for_output("up", 3)) << job.err();
    job.signal(SIGINT);
    const HostProgramResult result = job.wait(30s);
    EXPECT_EQ(result.exit_code, 128 + SIGINT) << result.err;
    for (const char* rank : {"0", "1", "2"}) {
        EXPECT_THAT(result.out, HasSubstr(std::string("interrupted ") + rank));
    }
    EXPECT_EQ(count_of(result.err, "stopped by SIGINT"), 1) << result.err;
    expect_empty(world);
}

TEST_F(LaunchRemote, ASecondCtrlCKills) {
    HostWorld world(2);
    HostProgram job = start(world, {"--hosts=h1,h2"}, bash(stubborn));
    ASSERT_TRUE(job.wait_for_output("up", 2)) << job.err();
    job.signal(SIGINT);
    ASSERT_TRUE(job.wait_for_error("SIGINT")) << job.err();
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(20s).exit_code, 128 + SIGINT) << job.err();
    expect_empty(world);
}

TEST_F(LaunchRemote, OtherSignalsReachTheWorkers) {
    HostWorld world(2);
    HostProgram job =
        start(world, {"--hosts=h1,h2"},
              bash("trap 'echo got it; exit 0' USR1; echo up; while :; do sleep 0.1; done"));
    ASSERT_TRUE(job.wait_for_output("up", 2)) << job.err();
    job.signal(SIGUSR1);
    EXPECT_EQ(job.wait(20s).exit_code, 0) << job.err();
    EXPECT_EQ(count_of(job.out(), "got it"), 2);
}

// Of the ranks of all hosts; this one's folder is theirs, too.
TEST_F(LaunchRemote, AFlightRecordersSignalReachesTheLaunchersAndNoWorker) {
    HostWorld world(2);
    const std::string prefix = files_.path() + "/rank_";
    HostProgram job = start(world, {"--hosts=h1,h2", "--flight-recorder=" + prefix},
                            bash("trap 'exit 3' USR1; echo up; while :; do sleep 0.1; done"));
    ASSERT_TRUE(job.wait_for_output("up", 2)) << job.err();
    job.signal(SIGUSR1);
    for (const char* const rank : {"0", "1"}) {
        EXPECT_TRUE(job.wait_for_error("flight records on SIGUSR1: " + prefix + rank + "\n"))
            << job.err();
    }
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(20s).exit_code, 128 + SIGTERM) << job.err();
}

TEST_F(LaunchRemote, ATermWhileHostsAreStartedEndsTheStart) {
    HostWorld world(2);
    const std::string rsh =
        script("rsh", "[ $1 = h2 ] && exec sleep 60\nexec " + world.rsh() + " \"$@\"\n");
    HostProgram job = start(world, {"--hosts=h1,h2", "--rsh=" + rsh}, bash("echo up"));
    const Clock::time_point until = Clock::now() + 30s;
    while (world.count_on(1, "ddp-agent") < 1) ASSERT_LT(Clock::now(), until);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait(20s).exit_code, 128 + SIGTERM) << job.err();
    expect_empty(world);
}

// Its connection hangs, say, after its host has lost its power.
TEST_F(LaunchRemote, AnRshThatDoesNotEndDoesNotHoldTheStarter) {
    HostWorld world(2);
    const std::string rsh =
        script("rsh", world.rsh() + " \"$@\"\n[ $1 = h2 ] && exec sleep 600\nexit 0\n");
    HostProgram job = start(world, {"--hosts=h1,h2", "--rsh=" + rsh}, bash("exit 0"));
    EXPECT_EQ(job.wait(60s).exit_code, 0) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("no end has come from h2"));
    expect_empty(world);
}

// Output ----------------------------------------------------------------------------------------

TEST_F(LaunchRemote, ManyLinesOfAllHostsComeWholeAndInOrder) {
    HostWorld world(3);
    constexpr std::size_t lines = 100'000;
    const std::string format = "a line of $(hostname) with number %.0f, and some more text";
    HostProgram job = start(world, {"--hosts=h1:1,h2:1,h3:1"},
                            bash("seq -f \"" + format + "\" " + std::to_string(lines) +
                                 " & seq -f \"err " + format + "\" 1000 >&2; wait"));
    const HostProgramResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err.substr(0, 1000);
    std::map<std::string, std::size_t> next;
    std::size_t wrong = 0;
    for (const std::string& line : lines_of(result.out)) {
        const std::string host = line.substr(std::min(line.size(), std::size_t{10}), 2);
        const std::string number = std::to_string(++next[host]);
        const bool is_whole =
            line == "a line of " + host + " with number " + number + ", and some more text";
        wrong += is_whole ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U);
    for (const char* host : {"h1", "h2", "h3"}) EXPECT_EQ(next[host], lines);
    EXPECT_EQ(count_of(result.err, "err a line of h"), 3000);
}

TEST_F(LaunchRemote, AReaderThatGoesEndsTheJobAsAnyPipe) {
    HostWorld world(2);
    HostProgram job = world.run(
        1, {"bash", "-c",
            std::string("set -o pipefail; ") + DDP_LAUNCH + " --rsh='" + world.rsh() +
                "' --hosts=h1,h2 bash -c 'while :; do echo line; sleep 0.01; done' | head -n 3"});
    EXPECT_EQ(job.wait(30s).exit_code, 128 + SIGPIPE) << job.err();
    EXPECT_EQ(job.out(), "line\nline\nline\n");
    expect_empty(world);
}

TEST_F(LaunchRemote, AReaderThatGoesEndsAJobThatMayLoseHosts) {
    HostWorld world(3);
    HostProgram job = world.run(
        1, {"bash", "-c",
            std::string("set -o pipefail; ") + DDP_LAUNCH + " --rsh='" + world.rsh() +
                "' --hosts=h1,h2,h3 --nnodes=2:3 --ranks-filter=2 bash -c 'while :; do echo "
                "line; sleep 0.01; done' | head -n 3"});
    EXPECT_EQ(job.wait(30s).exit_code, 128 + SIGPIPE) << job.err();
    EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("started again")));
    expect_empty(world);
}

TEST_F(LaunchRemote, CtrlCEndsAJobThatMayLoseHosts) {
    HostWorld world(3);
    HostProgram job = start(world, of_two_or_three, bash("echo up; exec sleep 60"));
    ASSERT_TRUE(job.wait_for_output("up", 6)) << job.err();
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(30s).exit_code, 128 + SIGINT) << job.err();
    EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("lost h")));
    expect_empty(world);
}

}  // namespace
}  // namespace ddp::launcher
