// What workers can write, the agent reads without trust: whatever stands in the control page or in
// an error file, and however long it is, the job's true end is reported.
#include "base/process/process_tree.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/pseudo_terminal.hpp"
#include "support/seed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>

#include <algorithm>
#include <csignal>

namespace ddp::security_test {
namespace {

using launcher::testing::Launch;
using launcher::testing::LaunchResult;
using launcher::testing::LaunchSettings;
using launcher::testing::LaunchTest;
using launcher::testing::patience;
using launcher::testing::PseudoTerminal;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t ranks = 2;

class HostileWorker : public LaunchTest {
protected:
    static Launch::Words hostile(Launch::Words options, const Launch::Words& words) {
        options.emplace_back(DDP_HOSTILE_WORKER);
        options.insert(options.end(), words.begin(), words.end());
        return options;
    }

    // On a terminal, since the agent looks at the pages for the status line alone.
    void expect_end_after(const Launch::Words& words, int code) {
        PseudoTerminal terminal;
        Launch job(folder_, hostile({"--nproc-per-node=2", "--shutdown-timeout=5"}, words),
                   {.environment = {"TERM=xterm"}, .terminal = terminal.theirs()});
        const LaunchResult result = wait_reading(job, terminal);
        const std::string& shown = terminal.read();
        const std::string tail =
            shown.substr(shown.size() - std::min<std::size_t>(shown.size(), 2000));
        EXPECT_EQ(result.exit_code, code) << tail;
        EXPECT_THAT(shown, HasSubstr("exit code " + std::to_string(code)));
        EXPECT_THAT(shown, Not(HasSubstr("the agent (pid")));
    }

    // A terminal that nobody reads takes no more.
    static LaunchResult wait_reading(Launch& job, PseudoTerminal& terminal) {
        const auto deadline = base::Deadline::after(patience);
        LaunchResult result;
        while (result.exit_code == -1 && !deadline.passed()) {
            result = job.wait(milliseconds{20});
            terminal.read();
        }
        return result;
    }

    void scribble_at(const char* verb, std::size_t begin, std::size_t end, std::size_t step) {
        const unsigned seed = store_test::random_seed();
        for (std::size_t offset = begin; offset < end && !HasFailure(); offset += step) {
            SCOPED_TRACE(verb + (" " + std::to_string(offset)));
            expect_end_after({verb, std::to_string(offset), std::to_string(seed + offset), "7"}, 7);
        }
    }
};

TEST_F(HostileWorker, MayWriteAnywhereInTheControlPages) {
    expect_end_after({"scribble", std::to_string(store_test::random_seed()), "7"}, 7);
}

TEST_F(HostileWorker, MayChangeTheNumberOfRanks) { scribble_at("scribble_at", 12, 13, 1); }

TEST_F(HostileWorker, SoakMayWriteAnywhereInTheControlPagesForAMinute) {
    const unsigned seed = store_test::random_seed();
    for (unsigned pass = 0; pass < 60 && !HasFailure(); ++pass) {
        expect_end_after({"scribble", std::to_string(seed + pass), "7"}, 7);
    }
}

TEST_F(HostileWorker, SoakMayWriteAtEveryOffsetOfTheControlPages) {
    scribble_at("scribble_at", 0, 40, 1);  // the header's numbers, while the agent looks at them
    scribble_at("scribble_once", 0, page_bytes - 7, 1);
    scribble_at("scribble_once", page_bytes, (1 + ranks) * page_bytes, 8);
}

TEST_F(HostileWorker, MayWriteAnErrorFileOfAnyDepth) {
    for (const char* depth : {"1000", "400000", "500000", "1000000"}) {
        SCOPED_TRACE(depth);
        const LaunchResult result = launch(hostile({"--nproc-per-node=2"}, {"deep", depth, "3"}));
        EXPECT_EQ(result.exit_code, 3) << result.err;
        EXPECT_THAT(result.err, HasSubstr("rank 0"));
        EXPECT_THAT(result.err, HasSubstr("exit code 3"));
    }
}

TEST_F(HostileWorker, MayWriteAnErrorFileOfAnyLength) {
    for (const char* bytes : {"1048577", "1073741824"}) {
        SCOPED_TRACE(bytes);
        const LaunchResult result = launch(hostile({"--nproc-per-node=2"}, {"long", bytes, "3"}));
        EXPECT_EQ(result.exit_code, 3) << result.err;
        EXPECT_THAT(result.err, HasSubstr("exit code 3"));
    }
}

// The report goes to a file of the caller's, too.
TEST_F(HostileWorker, MayWriteADeepErrorFileForAReportThatIsKept) {
    const launcher::testing::TemporaryFolder kept;
    const LaunchResult result =
        launch(hostile({"--nproc-per-node=2", "--log-dir=" + kept.path()}, {"deep", "400000", "3"}),
               {.environment = {"TORCHELASTIC_ERROR_FILE=" + kept.path() + "/error.json"}});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_THAT(result.err, HasSubstr("exit code 3"));
}

bool wait_until_stopped(pid_t pid) {
    const auto deadline = base::Deadline::after(patience);
    while (!deadline.passed()) {
        const std::string text = base::read_small_file("/proc/" + std::to_string(pid) + "/stat");
        if (text.find(") T ") != text.npos) return true;
        ::poll(nullptr, 0, 1);
    }
    return false;
}

// Twelve held workers with messages of 1 MB each: more than a frame between agent and front.
TEST_F(HostileWorker, MayHaveMuchToSayWhenItIsHeld) {
    constexpr int held = 12;
    Launch job(folder_, hostile({"--nproc-per-node=" + std::to_string(held), "--break-on-failure",
                                 "--shutdown-timeout=5"},
                                {"held", "1000000", "5"}));
    ASSERT_TRUE(job.wait_for_output("ready", held)) << job.wait().err;
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    const std::vector<pid_t> workers = launcher::testing::children_now(*agent);
    ASSERT_EQ(workers.size(), std::size_t{held});
    // The agent finds all of them stopped when it looks again.
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    for (const pid_t worker : workers) ::kill(worker, SIGUSR1);
    for (const pid_t worker : workers) EXPECT_TRUE(wait_until_stopped(worker));
    ASSERT_EQ(::kill(*agent, SIGCONT), 0);
    for (const pid_t worker : workers) {
        ASSERT_TRUE(job.wait_for_error("gdb -p " + std::to_string(worker))) << job.wait().exit_code;
    }
    for (const pid_t worker : workers) ::kill(worker, SIGCONT);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 5) << result.err.substr(0, 3000);
    EXPECT_THAT(result.err, HasSubstr("exit code 5"));
}

}  // namespace
}  // namespace ddp::security_test
