// --max-restarts: after a failure all workers start anew, with nothing of the attempt before.
#include "base/net/socket.hpp"
#include "launcher/launch_fixture.hpp"

#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LaunchRestart : public LaunchTest {
protected:
    static Launch::Words shell(Launch::Words options, const std::string& script) {
        options.insert(options.end(), {"bash", "-c", script});
        return options;
    }
    void restart_often(int times) {
        // Those that are compared come once the agent has let go of its ends of the worker's pipes.
        const std::string figures =
            "case $TORCHELASTIC_RESTART_COUNT in 10|" + std::to_string(times) +
            ") sleep 0.3;; esac; "
            "pids=\"$PPID $(cut -d' ' -f4 /proc/$PPID/stat)\"; for pid in $pids; do "
            "echo \"$TORCHELASTIC_RESTART_COUNT fds $(ls /proc/$pid/fd | wc -l) rss "
            "$(grep VmRSS /proc/$pid/status | tr -dc 0-9)\"; done; exit 3";
        Launch job(folder_, shell({"--max-restarts=" + std::to_string(times)}, figures));
        const LaunchResult result = job.wait(std::chrono::minutes{10});
        EXPECT_EQ(result.exit_code, 3);
        const auto lines = lines_of(result.out);
        const auto last = static_cast<std::size_t>(2 * times);
        ASSERT_EQ(lines.size(), last + 2);
        for (const std::size_t who : {0U, 1U}) {
            const std::string& early = lines[20 + who];
            const std::string& late = lines[last + who];
            int restarts = 0, early_fds = 0, early_rss = 0, late_fds = 0, late_rss = 0;
            ASSERT_EQ(std::sscanf(early.c_str(), "10 fds %d rss %d", &early_fds, &early_rss), 2);
            ASSERT_EQ(
                std::sscanf(late.c_str(), "%d fds %d rss %d", &restarts, &late_fds, &late_rss), 3);
            EXPECT_EQ(restarts, times);
            EXPECT_EQ(early_fds, late_fds) << late;
            if (memory_is_measured) {
                EXPECT_LE(late_rss, early_rss + 1024) << late;
            }
        }
    }
};

TEST_F(LaunchRestart, TheWholeGroupStartsAnewAndKnowsWhichTime) {
    const LaunchResult result = launch(shell(
        {"--nproc-per-node=3", "--max-restarts=4"},
        "echo \"rank $RANK attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS\"; "
        "if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then exit 0; fi; "
        "if [ $RANK = 1 ]; then exit 9; fi; exec sleep 99"));
    EXPECT_EQ(result.exit_code, 0);
    for (const char* attempt : {"0", "1", "2"}) {
        for (const char* rank : {"0", "1", "2"}) {
            EXPECT_THAT(result.out,
                        HasSubstr(std::string("rank ") + rank + " attempt " + attempt + " of 4\n"));
        }
    }
    EXPECT_THAT(result.err, HasSubstr("restart 1 of 4"));
    EXPECT_THAT(result.err, HasSubstr("restart 2 of 4"));
    EXPECT_THAT(result.err, Not(HasSubstr("restart 3 of 4")));
}

TEST_F(LaunchRestart, WhenNoneIsLeftTheLastFailureCounts) {
    const LaunchResult result = launch(shell({"--nproc-per-node=2", "--max-restarts=1"},
                                             "exit $((5 + TORCHELASTIC_RESTART_COUNT))"));
    EXPECT_EQ(result.exit_code, 6);
    EXPECT_THAT(result.err, HasSubstr("no restart left (1 used)"));
}

TEST_F(LaunchRestart, ASuccessIsNotRepeated) {
    const LaunchResult result = launch(shell({"--max-restarts=3"}, "echo once"));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "once\n");
}

TEST_F(LaunchRestart, AProgramThatCannotRunIsNotTriedAgain) {
    const std::string script = folder_.path() + "/no_interpreter";
    std::ofstream(script) << "#!/nowhere/at/all\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const LaunchResult result = launch({"--max-restarts=3", script});
    EXPECT_EQ(result.exit_code, 127);
    EXPECT_THAT(result.err, Not(HasSubstr("restart")));
    std::filesystem::remove(script);
}

TEST_F(LaunchRestart, NothingThatAnAttemptStartedLivesInTheNext) {
    const LaunchResult result =
        launch(shell({"--max-restarts=1"},
                     "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "
                     "(setsid sleep 98 & echo $! > daemon); exit 3; fi; "
                     "kill -0 $(cat daemon) 2>/dev/null && echo lives || echo gone; rm daemon"));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "gone\n");
}

// The port stays, its content goes, connections of the attempt before are closed.
TEST_F(LaunchRestart, TheStoreIsEmptyAndAtTheSamePlace) {
    Launch job(folder_, shell({"--max-restarts=1"},
                              "echo port $TORCHELASTIC_RESTART_COUNT $MASTER_PORT; "
                              "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "
                              "while [ ! -e go ]; do sleep 0.02; done; rm go; exit 3; fi; "
                              "exec sleep 99"));
    ASSERT_TRUE(job.wait_for_output("port 0 "));
    ASSERT_TRUE(job.wait_for_output("\n"));
    const std::string port = job.out().substr(7, job.out().find('\n') - 7);
    const MasterAddress address{"127.0.0.1", static_cast<std::uint16_t>(std::stoi(port))};
    const auto old_client = connect_tcp_store(address, patience);
    old_client->set("key", "value");
    std::ofstream(folder_.path() + "/go").flush();
    ASSERT_TRUE(job.wait_for_output("port 1 " + port + "\n"));
    EXPECT_FALSE(connect_tcp_store(address, patience)->check({"key"}));
    EXPECT_ANY_THROW(old_client->get("key"));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(LaunchRestart, AnErrorFileOfAnEarlierAttemptIsNotReported) {
    const LaunchResult result = launch(shell(
        {"--max-restarts=1"}, std::string("if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec ") +
                                  DDP_TEST_WORKER + " write_error_file 4 first; fi; exit 5"));
    EXPECT_EQ(result.exit_code, 5);
    const std::size_t restart = result.err.find("restart 1 of 1");
    ASSERT_NE(restart, std::string::npos);
    EXPECT_THAT(result.err.substr(0, restart), HasSubstr("first"));
    EXPECT_THAT(result.err.substr(restart), Not(HasSubstr("first")));
}

TEST_F(LaunchRestart, AUsersStopIsNotMended) {
    Launch job(folder_, shell({"--max-restarts=5"}, "echo up; exec sleep 99"));
    ASSERT_TRUE(job.wait_for_output("up"));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143);
    EXPECT_EQ(result.out, "up\n");
}

TEST_F(LaunchRestart, AStopInThePauseEndsTheJob) {
    Launch job(folder_, shell({"--max-restarts=5", "--restart-delay=60"}, "echo up; exit 3"));
    ASSERT_TRUE(job.wait_for_output("up"));
    ASSERT_TRUE(job.wait_for_error("restart 1 of 5 in"));
    job.signal(SIGINT);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_EQ(result.out, "up\n");
    EXPECT_THAT(result.err, HasSubstr("stopped by SIGINT before the restart"));
}

// Strangers at the store's port, in the pause, more than the agent has descriptors for.
TEST_F(LaunchRestart, ComesWhenConnectionsHaveTakenAllDescriptors) {
    // The agent raises its limit as far as it may: a hard one, set between two launchers.
    Launch job(folder_,
               {"bash", "-c",
                std::string("ulimit -n 48; exec ") + DDP_LAUNCH +
                    " --max-restarts=1 --restart-delay=2 bash -c \"$1\"",
                "bash", "echo port $MASTER_PORT; exit $((TORCHELASTIC_RESTART_COUNT ? 0 : 3))"});
    ASSERT_TRUE(job.wait_for_error("restart 1 of 1 in"));
    ASSERT_TRUE(job.wait_for_output("\n"));
    const auto port = static_cast<std::uint16_t>(std::stoi(job.out().substr(5)));
    const auto deadline = base::Deadline::after(patience);
    const auto now = base::Deadline::after(std::chrono::milliseconds{0});
    int error = 0;
    std::vector<base::UniqueFd> strangers;
    do {
        ASSERT_FALSE(deadline.passed()) << "none was turned away";
        strangers.push_back(base::try_connect_tcp("127.0.0.1", port, deadline, error));
    } while (!base::wait_readable(strangers.front().get(), now));
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(LaunchRestart, TheSameFailureAgainAndSoonEndsIt) {
    const LaunchResult result =
        launch(shell({"--max-restarts=50", "--same-failure-window=60"}, "exit 3"));
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("rank 0 failed the same way twice"));
    EXPECT_THAT(result.err, Not(HasSubstr("restart 2 of 50")));
}

// What the launcher and its agent hold, by restart: descriptors exactly, memory nearly.
TEST_F(LaunchRestart, AHundredRestartsLeaveNothingBehindInTheLauncher) { restart_often(100); }

TEST_F(LaunchRestart, SoakAThousandRestartsLeaveNothingBehindInTheLauncher) { restart_often(1000); }

}  // namespace
}  // namespace ddp::launcher::testing
