// The real ddp-launch on a pseudo-terminal, and --tty for its workers.
#include "launcher/launch_fixture.hpp"
#include "launcher/pseudo_terminal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

namespace ddp::launcher::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchConsole : public LaunchTest {
protected:
    LaunchSettings settings() const {
        return {.environment = {"TERM=xterm", "NO_COLOR=1"}, .terminal = terminal_.theirs()};
    }
    // Until the terminal got this text.
    bool wait_for(Launch& job, const std::string& text) {
        const auto deadline = base::Deadline::after(patience);
        while (!deadline.passed()) {
            if (terminal_.read().find(text) != std::string::npos) return true;
            if (job.wait(milliseconds{10}).exit_code >= 0) break;
        }
        return terminal_.read().find(text) != std::string::npos;
    }
    LaunchResult wait_reading(Launch& job) {
        const auto deadline = base::Deadline::after(patience);
        LaunchResult result;
        while (result.exit_code < 0 && !deadline.passed()) {
            terminal_.read();
            result = job.wait(milliseconds{10});
        }
        return result;
    }

    PseudoTerminal terminal_;
};

TEST_F(LaunchConsole, LinesCarryTheirRank) {
    Launch job(folder_, {"--nproc-per-node=2", "bash", "-c", "echo out; echo err >&2"}, settings());
    EXPECT_EQ(wait_reading(job).exit_code, 0);
    const std::string screen = screen_of(terminal_.read());
    for (const char* line : {"[0] out\n", "[1] out\n", "[0] err\n", "[1] err\n"}) {
        EXPECT_THAT(screen, HasSubstr(line));
    }
}

TEST_F(LaunchConsole, TheOnlyWorkersOutputIsLeftAlone) {
    Launch job(folder_, {"printf", "a\\r10 %%\\r20 %%"}, settings());
    EXPECT_EQ(wait_reading(job).exit_code, 0);
    EXPECT_EQ(terminal_.read(), "a\r10 %\r20 %") << "it has the terminal itself";
}

TEST_F(LaunchConsole, AStatusLineShowsProgressAndIsGoneAtTheEnd) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"publish_progress", "7", "3"}), settings());
    EXPECT_TRUE(wait_for(job, "ddp-launch: 2/2 ranks up, 0:0")) << terminal_.read();
    EXPECT_TRUE(wait_for(job, "step 7, 3.00 steps/s")) << terminal_.read();
    EXPECT_THAT(screen_of(terminal_.read()), HasSubstr("2/2 ranks up"));
    job.signal(SIGTERM);
    EXPECT_EQ(wait_reading(job).exit_code, 143);
    EXPECT_THAT(screen_of(terminal_.read()), Not(HasSubstr("ranks up")));
}

TEST_F(LaunchConsole, TheStatusLineCanBeSwitchedOff) {
    Launch job(folder_,
               {"--status=off", "--nproc-per-node=2", "bash", "-c", "sleep 1.5; echo done"},
               settings());
    EXPECT_EQ(wait_reading(job).exit_code, 0);
    EXPECT_THAT(terminal_.read(), Not(HasSubstr("ranks up")));
}

TEST_F(LaunchConsole, ATerminalThatTakesNothingLosesLinesAndHoldsUpNobody) {
    TemporaryFolder logs;
    Launch job(
        folder_,
        plain({"--log-dir=" + logs.path(), "--nproc-per-node=2"}, {"many_lines", "200000", "out"}),
        settings());
    EXPECT_EQ(job.wait().exit_code, 0) << "nobody reads the terminal";
}

TEST_F(LaunchConsole, WorkersGetATerminalOfTheirOwn) {
    const LaunchResult result = launch(plain({"--tty", "--nproc-per-node=2"}, {"show_terminal"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::vector<std::string> lines = lines_of(result.out);
    std::sort(lines.begin(), lines.end());
    EXPECT_EQ(lines, (std::vector<std::string>{"on stderr", "on stderr",
                                               "terminals 011, 80 x 24, controlling yes",
                                               "terminals 011, 80 x 24, controlling yes"}));
}

TEST_F(LaunchConsole, TheWorkersTerminalIsAsWideAsOurs) {
    PseudoTerminal wide(123);
    Launch job(folder_, plain({"--tty"}, {"show_terminal"}),
               {.environment = {"TERM=xterm"}, .terminal = wide.theirs()});
    EXPECT_EQ(job.wait().exit_code, 0);
    EXPECT_THAT(wide.read(), HasSubstr("123 x 24"));
}

}  // namespace
}  // namespace ddp::launcher::testing
