// Jobs that lose the host of their coordinator, and of which another host may take over.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // hosts_fixture.hpp

constexpr int all_hosts = 3;
constexpr int lost_host = 84;

class LaunchHostsSuccession : public HostsTest {
protected:
    HostProgram launch_one(int host, const Words& command, const Words& more = {}) {
        Words options{"--rdzv-backend=c10d", "--rdzv-endpoint=h1:29400,h2:29400,h3:29400",
                      "--node-timeout=2", "--nproc-per-node=2"};
        options.insert(options.end(), more.begin(), more.end());
        return launch(world_, host, options, command, {.environment = environment_});
    }
    std::vector<HostProgram> launch_hosts(const Words& command, const Words& more) {
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= all_hosts; ++host) {
            launchers.push_back(launch_one(host, command, more));
        }
        return launchers;
    }
    void kill_launcher(int host) {
        std::vector<pid_t> pids;
        for (const pid_t pid : world_.pids_on(host)) {
            if (comm_of(pid).starts_with("ddp-")) pids.push_back(pid);
        }
        kill_at_once(pids);
    }

    // Of all six ranks.
    static void wait_for_round_1(std::vector<HostProgram>& launchers) {
        for (HostProgram& one : launchers) {
            ASSERT_TRUE(one.wait_for_output("of 6 at h1:29400", 2)) << one.err();
        }
    }
    // All end well, and each has said all of this.
    static void expect_success(const std::vector<HostProgram*>& launchers, const Words& texts) {
        for (HostProgram* one : launchers) {
            EXPECT_EQ(one->wait(40s).exit_code, 0) << one->err();
            for (const std::string& text : texts) EXPECT_THAT(one->out(), HasSubstr(text));
        }
    }
    static void expect_round_2_on_hosts_2_and_3(std::vector<HostProgram>& launchers) {
        for (const int host : {2, 3}) {
            HostProgram& one = launchers[static_cast<std::size_t>(host - 1)];
            EXPECT_EQ(one.wait(40s).exit_code, 0) << one.err();
            const std::string rank = std::to_string(2 * host - 4);
            EXPECT_THAT(one.out(),
                        HasSubstr("round 2: " + rank + " of 4 at 10.77.0.2:29400, restarts 0."));
        }
        EXPECT_THAT(launchers[1].err(), HasSubstr("takes over from the coordinator"));
    }

    HostWorld world_{all_hosts};
    Words environment_;
};

// In round 1 it waits, in a later one it is done, after this.
Words two_rounds_and(const std::string& last) {
    return bash(
        "echo round $DDP_ROUND: $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT, restarts "
        "$TORCHELASTIC_RESTART_COUNT.; [ $DDP_ROUND -gt 1 ] || exec sleep 60; " +
        last);
}
const Words two_rounds = two_rounds_and("true");

TEST_F(LaunchHostsSuccession, TheNextHostTakesOverFromOneWithoutPower) {
    std::vector<HostProgram> launchers = launch_hosts(two_rounds, {"--nnodes=2:3"});
    wait_for_round_1(launchers);
    world_.power_off(1);
    expect_round_2_on_hosts_2_and_3(launchers);
}

TEST_F(LaunchHostsSuccession, TheNextHostTakesOverFromOneWhoseLauncherIsKilled) {
    std::vector<HostProgram> launchers = launch_hosts(two_rounds, {"--nnodes=2:3"});
    wait_for_round_1(launchers);
    kill_launcher(1);
    expect_round_2_on_hosts_2_and_3(launchers);
    EXPECT_TRUE(world_.pids_on(1).empty());
}

// And who looks whether another host coordinates proves that it has the token.
TEST_F(LaunchHostsSuccession, AJobWithATokenHasASuccessorToo) {
    const std::string token = files_.path() + "/token";
    std::ofstream(token) << std::string(64, 'a');
    ::chmod(token.c_str(), 0600);
    environment_ = {"DDP_JOB_TOKEN_FILE=" + token};
    const Words options{"--nnodes=2:3", "--auth=required"};
    // Until it has been found, however long a busy host takes to look.
    const std::string found = files_.path() + "/found";
    const std::string wait = "until [ -e " + found + " ]; do sleep 0.05; done";
    std::vector<HostProgram> launchers = launch_hosts(two_rounds_and(wait), options);
    wait_for_round_1(launchers);
    kill_launcher(1);
    HostProgram again = launch_one(1, bash("true"), options);
    EXPECT_TRUE(again.wait_for_error("another host coordinates the job"))
        << again.err() << "exit code " << again.wait(0ms).exit_code;
    std::ofstream(found) << "yes";
    expect_success({&launchers[1], &launchers[2]}, {"at 10.77.0.2:29400, restarts 0."});
}

TEST_F(LaunchHostsSuccession, AHostThatServesOnlyHasASuccessorToo) {
    const Words endpoints{"--rdzv-endpoint=h3:29400,h1:29400,h2:29400", "--nnodes=2"};
    Words serve{"--serve-only", "--rdzv-backend=c10d", "--node-timeout=2", "--max-restarts=1"};
    serve.insert(serve.end(), endpoints.begin(), endpoints.end());
    HostProgram served = launch(world_, 3, serve, {});
    Words options = endpoints;
    options.emplace_back("--max-restarts=1");
    std::vector<HostProgram> launchers;
    for (const int host : {1, 2}) launchers.push_back(launch_one(host, two_rounds, options));
    for (HostProgram& one : launchers) {
        ASSERT_TRUE(one.wait_for_output("of 4 at h3:29400", 2)) << one.err();
    }
    world_.power_off(3);
    expect_success({&launchers[0], &launchers[1]},
                   {"round 2: ", "at 10.77.0.1:29400, restarts 1."});
}

// Both sides live: only one goes on.
TEST_F(LaunchHostsSuccession, TheSideOfTheCoordinatorEndsWithoutAMajority) {
    std::vector<HostProgram> launchers = launch_hosts(two_rounds, {"--nnodes=2:3"});
    wait_for_round_1(launchers);
    world_.cut(1);
    expect_round_2_on_hosts_2_and_3(launchers);
    EXPECT_EQ(launchers[0].wait(20s).exit_code, lost_host);
    EXPECT_THAT(launchers[0].err(), HasSubstr("too few of"));
    EXPECT_THAT(launchers[0].out(), Not(HasSubstr("round 2")));
}

TEST_F(LaunchHostsSuccession, AHostAloneEndsWithoutTheOthers) {
    std::vector<HostProgram> launchers = launch_hosts(two_rounds, {"--nnodes=2:3"});
    wait_for_round_1(launchers);
    world_.cut(3);
    EXPECT_EQ(launchers[2].wait(40s).exit_code, lost_host);
    EXPECT_THAT(launchers[2].err(), HasSubstr("(h3) are too few of the 3 of round 1"));
    EXPECT_THAT(launchers[2].out(), Not(HasSubstr("round 2")));
    for (const int host : {1, 2}) {
        HostProgram& one = launchers[static_cast<std::size_t>(host - 1)];
        EXPECT_EQ(one.wait(20s).exit_code, 0) << one.err();
        EXPECT_THAT(one.out(), HasSubstr("round 2: " + std::to_string(2 * host - 2) + " of 4"));
    }
}

TEST_F(LaunchHostsSuccession, OfTwoHostsNoneGoesOnWithoutTheCoordinators) {
    std::vector<HostProgram> launchers;
    const Words endpoints{"--nnodes=1:2", "--rdzv-endpoint=h1:29400,h2:29400",
                          "--rdzv-conf=last_call_timeout=1"};
    for (const int host : {1, 2}) launchers.push_back(launch_one(host, two_rounds, endpoints));
    for (HostProgram& one : launchers) {
        ASSERT_TRUE(one.wait_for_output("of 4", 2)) << one.err();
    }
    world_.power_off(1);
    EXPECT_EQ(launchers[1].wait(20s).exit_code, lost_host);
    EXPECT_THAT(launchers[1].err(), HasSubstr("this host has lost its job"));
}

// What was a failure of one host before is one of the coordinator's, too.
TEST_F(LaunchHostsSuccession, AFixedJobWaitsForTheHostAndUsesARestart) {
    const Words options{"--nnodes=3", "--max-restarts=1"};
    std::vector<HostProgram> launchers = launch_hosts(two_rounds, options);
    wait_for_round_1(launchers);
    world_.power_off(1);
    ASSERT_TRUE(launchers[1].wait_for_error("host h1 was lost")) << launchers[1].err();
    world_.power_on(1);
    HostProgram again = launch_one(1, two_rounds, options);
    expect_success({&launchers[1], &launchers[2], &again}, {"of 6 at", "restarts 1."});
}

// Its launcher is started again, and does not begin another job.
TEST_F(LaunchHostsSuccession, TheFirstHostJoinsWhenItComesAgain) {
    const Words worker = bash(
        "echo round $DDP_ROUND: $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT; "
        "[ $DDP_ROUND -gt 2 ] || exec sleep 60");
    const Words options{"--nnodes=2:3", "--rdzv-conf=last_call_timeout=0.5"};
    std::vector<HostProgram> launchers = launch_hosts(worker, options);
    wait_for_round_1(launchers);
    kill_launcher(1);
    ASSERT_TRUE(launchers[1].wait_for_output("round 2: 1 of 4")) << launchers[1].err();
    HostProgram again = launch_one(1, worker, options);
    expect_success({&launchers[1], &launchers[2], &again}, {"of 6 at", "round 3: "});
}

TEST_F(LaunchHostsSuccession, ASuccessorMayBeLostToo) {
    const Words worker = bash(
        "echo round $DDP_ROUND: $RANK of $WORLD_SIZE; [ $DDP_ROUND -gt 2 -a $WORLD_SIZE = 4 ] || "
        "exec sleep 60");
    const Words options{"--nnodes=1:3", "--rdzv-conf=last_call_timeout=0.5"};
    std::vector<HostProgram> launchers = launch_hosts(worker, options);
    for (HostProgram& one : launchers) {
        ASSERT_TRUE(one.wait_for_output("of 6", 2)) << one.err();
    }
    kill_launcher(1);
    HostProgram again = launch_one(1, worker, options);
    ASSERT_TRUE(again.wait_for_output("of 6", 2)) << again.err() << launchers[1].err();
    kill_launcher(2);
    expect_success({&launchers[2], &again}, {" of 4"});
}

TEST_F(LaunchHostsSuccession, APortThatIsTakenLeavesItToTheNext) {
    HostProgram other = world_.run(
        2, {"python3", "-c",
            "import socket, time; s = socket.create_server(('', 29400)); print('up', flush=True); "
            "time.sleep(60)"});
    ASSERT_TRUE(other.wait_for_output("up"));
    std::vector<HostProgram> launchers = launch_hosts(two_rounds, {"--nnodes=2:3"});
    wait_for_round_1(launchers);
    kill_launcher(1);
    expect_success({&launchers[1], &launchers[2]}, {"of 4 at 10.77.0.3:29400, restarts 0."});
}

}  // namespace
}  // namespace ddp::launcher
