// Jobs of several hosts, which are network namespaces: one ddp-launch on each, real workers.
#include "launcher/launch_fixture.hpp"
#include "support/host_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ddp::testing::HostProgram;
using ddp::testing::HostProgramResult;
using ddp::testing::HostWorld;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = HostWorld::Words;
using Clock = std::chrono::steady_clock;

class LaunchHosts : public ::testing::Test {
protected:
    void SetUp() override {
        if (const auto reason = HostWorld::unavailable()) GTEST_SKIP() << *reason;
    }

    HostProgram launch(HostWorld& world, int host, Words options, const Words& command,
                       const Words& environment = {}) {
        Words words{DDP_LAUNCH};
        words.insert(words.end(), options.begin(), options.end());
        words.emplace_back("--");
        words.insert(words.end(), command.begin(), command.end());
        Words all{"TMPDIR=" + files_.path(), "OMP_NUM_THREADS=1"};
        all.insert(all.end(), environment.begin(), environment.end());
        return world.run(host, std::move(words), std::move(all));
    }
    // A job of a fixed number of hosts: its part on one of them.
    HostProgram launch_static(HostWorld& world, int host, int workers, const Words& command,
                              Words more = {}) {
        Words options{"--nnodes=" + std::to_string(world.size()),
                      "--node-rank=" + std::to_string(host - 1), "--master-addr=h1",
                      "--nproc-per-node=" + std::to_string(workers)};
        options.insert(options.end(), more.begin(), more.end());
        return launch(world, host, std::move(options), command);
    }
    // As a rule: two workers each, on all hosts.
    std::vector<HostProgram> launch_all(HostWorld& world, const Words& command, Words more = {}) {
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= world.size(); ++host) {
            launchers.push_back(launch_static(world, host, 2, command, more));
        }
        return launchers;
    }

    const testing::TemporaryFolder files_;
};

Words bash(const std::string& script) { return {"bash", "-c", script}; }

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

}  // namespace
}  // namespace ddp::launcher
