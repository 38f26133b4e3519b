// Processes that are the launcher's children without being the job's: what an entry point had
// started before it executed ddp-launch, and, as PID 1 of a container, anybody's orphans.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;

class LaunchStrangers : public LaunchTest {
protected:
    // The helper of an entry point, whose own parent ends when `helper.orphan` appears.
    std::string entry_point() const {
        return "bash -c 'sleep 300 & echo $! >" + path() + "; while [ ! -e " + path() +
               ".orphan ]; do sleep 0.01; done' & while [ ! -s " + path() +
               " ]; do sleep 0.01; done; exec \"$0\" \"$@\"";
    }
    Launch::Words with_helper(const Launch::Words& words) const {
        Launch::Words all{"-c", entry_point(), DDP_LAUNCH};
        all.insert(all.end(), words.begin(), words.end());
        return all;
    }
    std::string path() const { return kept_.path() + "/helper"; }
    pid_t helper() const {
        pid_t pid = 0;
        std::ifstream(path()) >> pid;
        return pid;
    }
    static pid_t parent_of(pid_t pid) {
        std::ifstream file("/proc/" + std::to_string(pid) + "/status");
        for (std::string line; std::getline(file, line);) {
            if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
        }
        return 0;
    }
    static bool until(const std::function<bool()>& condition) {
        const auto deadline = base::Deadline::after(patience);
        while (!condition() && !deadline.passed()) ::poll(nullptr, 0, 1);
        return condition();
    }
    void orphan_helper(const Launch& job) {
        std::ofstream(path() + ".orphan").close();
        EXPECT_TRUE(until([&] { return parent_of(helper()) == job.pid(); }));
    }
    void expect_helper_lives() {
        const pid_t pid = helper();
        ASSERT_GT(pid, 0);
        EXPECT_EQ(::kill(pid, 0), 0) << "somebody else's process was killed";
        ::kill(pid, SIGKILL);
    }

    TemporaryFolder kept_;
};

TEST_F(LaunchStrangers, AHelperOfTheEntryPointOutlivesTheJob) {
    Launch job(folder_, with_helper(plain({}, {"print_signals"})), {.program = "/bin/bash"});
    ASSERT_TRUE(job.wait_for_output("ready"));
    orphan_helper(job);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
    expect_helper_lives();
}

TEST_F(LaunchStrangers, AHelperOfTheEntryPointOutlivesAKilledAgent) {
    for (const bool orphaned : {false, true}) {
        Launch job(folder_, with_helper(plain({"--nproc-per-node=2"}, {"wait_forever"})),
                   {.environment = {"DDP_TEST_COOKIE=" + kept_.path()}, .program = "/bin/bash"});
        ASSERT_TRUE(job.wait_for_output("ready", 2));
        if (orphaned) orphan_helper(job);
        std::optional<pid_t> agent;
        for (const pid_t child : children_now(job.pid())) {
            if (::getsid(child) == child) agent = child;
        }
        ASSERT_TRUE(agent);
        ASSERT_EQ(::kill(*agent, SIGKILL), 0);
        const LaunchResult result = job.wait();
        EXPECT_EQ(result.exit_code, 137);
        EXPECT_THAT(result.err, HasSubstr("its workers were stopped"));
        expect_helper_lives();
        std::ofstream(path() + ".orphan").close();
        EXPECT_TRUE(
            until([&] { return processes_with("DDP_TEST_COOKIE=" + kept_.path()).empty(); }));
        std::remove((path() + ".orphan").c_str());
        std::remove(path().c_str());
    }
}

// As PID 1: the orphans of others are waited for.
TEST_F(LaunchStrangers, AsPid1TheOrphansOfOthersAreReaped) {
    if (std::system("unshare --pid --fork --mount-proc true 2>/dev/null") != 0) {
        GTEST_SKIP() << "this host allows no PID namespace";
    }
    Launch job(folder_,
               {"--pid", "--fork", "--kill-child", "--mount-proc", DDP_LAUNCH, DDP_TEST_WORKER,
                "wait_forever"},
               {.program = "/usr/bin/unshare"});
    ASSERT_TRUE(job.wait_for_output("ready"));
    const std::vector<pid_t> children = children_now(job.pid());
    ASSERT_EQ(children.size(), 1U);
    const pid_t front = children.front();
    const std::vector<pid_t> before = children_now(front);
    // Each leaves an orphan, which ends at once.
    const std::string enter = "nsenter -t " + std::to_string(front) +
                              " --pid --mount bash -c 'bash -c \"sleep 0.05\" & exit 0'";
    for (int i = 0; i < 3; ++i) ASSERT_EQ(std::system(enter.c_str()), 0);
    EXPECT_TRUE(until([&] { return children_now(front) == before; })) << "zombies are left";
    ::kill(front, SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

}  // namespace
}  // namespace ddp::launcher::testing
