// Jobs whose coordinator is a host without workers (--serve-only), which may lose any host that has
// some.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // hosts_fixture.hpp

constexpr int server = 3;  // its host

class LaunchHostsServed : public HostsTest {
protected:
    static Words with_endpoint(Words options) {
        options.insert(options.end(), {"--rdzv-backend=c10d", "--rdzv-endpoint=h3:29400"});
        return options;
    }
    HostProgram serve(Words options) {
        return launch(world_, server, with_endpoint(std::move(options)), {});
    }
    std::vector<HostProgram> launch_both(const Words& options, const Words& command) {
        std::vector<HostProgram> launchers;
        for (const int host : {1, 2}) {
            launchers.push_back(launch(world_, host, with_endpoint(options), command));
        }
        return launchers;
    }

    HostWorld world_{server};
};

TEST_F(LaunchHostsServed, AHostWithoutWorkersCoordinates) {
    HostProgram served = serve({"--serve-only", "--nnodes=2"});
    std::vector<HostProgram> launchers =
        launch_both({"--nnodes=2", "--nproc-per-node=2"},
                    bash("echo $RANK of $WORLD_SIZE, host $GROUP_RANK of $GROUP_WORLD_SIZE, "
                         "$MASTER_ADDR:$MASTER_PORT"));
    for (std::size_t i = 0; i < launchers.size(); ++i) {
        EXPECT_EQ(launchers[i].wait(20s).exit_code, 0) << launchers[i].err();
        const std::string place = ", host " + std::to_string(i) + " of 2, h3:29400\n";
        EXPECT_THAT(launchers[i].out(),
                    AllOf(HasSubstr(std::to_string(2 * i) + " of 4" + place),
                          HasSubstr(std::to_string(2 * i + 1) + " of 4" + place)));
    }
    EXPECT_EQ(served.wait(20s).exit_code, 0) << served.err();
    EXPECT_THAT(served.err(), HasSubstr("this host serves the others, without workers"));
}

TEST_F(LaunchHostsServed, WorkersMayRunOnItsHostToo) {
    HostProgram served = serve({"--serve-only", "--nnodes=3"});
    ASSERT_TRUE(served.wait_for_error("no job token")) << served.err();
    std::vector<HostProgram> launchers = launch_both({"--nnodes=3"}, bash("echo $WORLD_SIZE"));
    launchers.push_back(launch(world_, server, with_endpoint({"--nnodes=3"}), bash("echo $RANK")));
    for (HostProgram& one : launchers) EXPECT_EQ(one.wait(20s).exit_code, 0) << one.err();
    EXPECT_EQ(launchers[2].out(), "2\n");
    EXPECT_EQ(served.wait(20s).exit_code, 0) << served.err();
}

TEST_F(LaunchHostsServed, ItsCoordinatorShowsTheRanksOfAll) {
    const Words own_runs{"XDG_RUNTIME_DIR=" + files_.path()};
    HostProgram served =
        launch(world_, server, with_endpoint({"--serve-only", "--nnodes=2", "--rdzv-id=served"}),
               {}, {.environment = own_runs});
    ASSERT_TRUE(served.wait_for_error("no job token")) << served.err();
    // By its name, as root is shown jobs of other tests, too.
    const auto inspect = [&] {
        return world_.run(server, {DDP_LAUNCH, "inspect", "served"}, own_runs).wait().out;
    };
    EXPECT_THAT(inspect(), HasSubstr("(a coordinator without workers)\nrunning for "));
    std::vector<HostProgram> launchers =
        launch_both({"--nnodes=2", "--rdzv-id=served"}, bash("echo runs; exec sleep 60"));
    for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("runs")) << one.err();
    // A busy host may not answer in time.
    std::string all;
    for (int i = 0; i < 20 && all.find("   1  h2 ") == all.npos; ++i) all = inspect();
    EXPECT_THAT(all, AllOf(HasSubstr("(a coordinator without workers)"), HasSubstr("   0  h1 "),
                           HasSubstr("   1  h2 "), HasSubstr("running")));
    served.signal(SIGTERM);
    for (HostProgram& one : launchers) one.wait(20s);
    EXPECT_EQ(served.wait(20s).exit_code, 128 + SIGTERM);
    EXPECT_THAT(inspect(), AllOf(HasSubstr("   0  h1 "), HasSubstr("   1  h2 "),
                                 HasSubstr("SIGTERM (signal 15)")));
}

TEST_F(LaunchHostsServed, OfAJobToWhichNobodyCameNothingRemains) {
    const Words own_runs{"XDG_RUNTIME_DIR=" + files_.path()};
    const auto served = launch(world_, server,
                               with_endpoint({"--serve-only", "--nnodes=2", "--rdzv-id=lonely",
                                              "--rdzv-conf=timeout=1"}),
                               {}, {.environment = own_runs})
                            .wait(20s);
    EXPECT_EQ(served.exit_code, 1) << served.err;
    const auto inspect = world_.run(server, {DDP_LAUNCH, "inspect", "lonely"}, own_runs).wait();
    EXPECT_EQ(inspect.exit_code, 1);
    EXPECT_THAT(inspect.err, HasSubstr("no job of lonely"));
}

TEST_F(LaunchHostsServed, AFailureIsReportedAndCountedThere) {
    HostProgram served = serve({"--serve-only", "--nnodes=2", "--max-restarts=1"});
    std::vector<HostProgram> launchers =
        launch_both({"--nnodes=2"}, bash("[ $RANK = 1 ] && exit 7; exec sleep 60"));
    for (HostProgram& one : launchers) EXPECT_EQ(one.wait(20s).exit_code, 7) << one.err();
    EXPECT_EQ(served.wait(20s).exit_code, 7);
    EXPECT_THAT(served.err(),
                AllOf(HasSubstr("rank 1 (local rank 0, pid "), HasSubstr("attempt 2 of 2")));
}

TEST_F(LaunchHostsServed, TheJobOutlivesTheHostOfRank0) {
    HostProgram served = serve({"--serve-only", "--nnodes=1:2", "--node-timeout=2"});
    std::vector<HostProgram> launchers =
        launch_both({"--nnodes=1:2", "--node-timeout=2"},
                    bash("echo round $DDP_ROUND: $RANK of $WORLD_SIZE; [ $WORLD_SIZE = 1 ] || "
                         "exec sleep 60"));
    for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("round 1:")) << one.err();
    world_.power_off(1);
    EXPECT_EQ(launchers[1].wait(20s).exit_code, 0) << launchers[1].err();
    EXPECT_THAT(launchers[1].out(), HasSubstr("round 2: 0 of 1"));
    EXPECT_EQ(served.wait(20s).exit_code, 0) << served.err();
    EXPECT_THAT(served.err(), HasSubstr("lost h1"));
}

TEST_F(LaunchHostsServed, ItsUserEndsTheJob) {
    HostProgram served = serve({"--serve-only", "--nnodes=2"});
    std::vector<HostProgram> launchers = launch_both({"--nnodes=2"}, bash("echo up; sleep 60"));
    for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up")) << one.err();
    served.signal(SIGINT);
    EXPECT_EQ(served.wait(20s).exit_code, 128 + SIGINT) << served.err();
    for (HostProgram& one : launchers) EXPECT_EQ(one.wait(20s).exit_code, 128 + SIGINT);
}

TEST_F(LaunchHostsServed, HostsThatNeverComeAreNotCounted) {
    HostProgram served = serve({"--serve-only", "--nnodes=2", "--rdzv-conf=timeout=1"});
    EXPECT_EQ(served.wait(20s).exit_code, 1);
    EXPECT_THAT(served.err(), HasSubstr("only 0 of at least 2 hosts came within 1 s: nobody"));
}

TEST_F(LaunchHostsServed, WhatDoesNotGoWithItIsRefused) {
    const auto refused = [&](const Words& options, const Words& command, const char* why) {
        HostProgram one = launch(world_, server, options, command);
        EXPECT_EQ(one.wait(20s).exit_code, 2);
        EXPECT_THAT(one.err(), HasSubstr(why));
    };
    const std::string endpoint = "--rdzv-endpoint=h3:29400";
    refused({"--serve-only", "--nnodes=2", endpoint}, bash("true"), "--serve-only with a program");
    refused({"--serve-only", "--nnodes=2", endpoint, "--nproc-per-node=2"}, {},
            "--serve-only with --nproc-per-node");
    refused({"--serve-only"}, {}, "say for how many hosts");
    HostProgram first = serve({"--serve-only", "--nnodes=2", "--rdzv-conf=timeout=1"});
    ASSERT_TRUE(first.wait_for_error("serves the others")) << first.err();
    refused({"--serve-only", "--nnodes=2", "--rdzv-backend=c10d", endpoint}, {},
            "port 29400 on h3, where the hosts are to meet, is in use");
}

}  // namespace
}  // namespace ddp::launcher
