// What the user sees of several workers: on a pipe, on a terminal, and on one that takes nothing.
#include "launcher/console/console.hpp"

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "launcher/console/line_prefix.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/pseudo_terminal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::PseudoTerminal;
using testing::screen_of;

constexpr milliseconds later{150};  // than an unfinished line is held back

class ConsoleTest : public ::testing::Test {
protected:
    ConsoleTest() {
        ::setenv("TERM", "xterm", 1);
        ::setenv("NO_COLOR", "1", 1);
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
        read_end_.reset(ends[0]);
        write_end_.reset(ends[1]);
        null_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
    }
    Console piped(ConsoleSettings settings) {
        return {std::move(settings), write_end_.get(), null_.get()};
    }
    std::string read() {
        std::array<char, 65536> bytes;
        for (;;) {
            const ssize_t got = ::read(read_end_.get(), bytes.data(), bytes.size());
            if (got <= 0) return text_;
            text_.append(bytes.data(), static_cast<std::size_t>(got));
        }
    }
    static OutputMessage output(int rank, const std::string& bytes, Stream stream = Stream::out) {
        return {stream, rank, bytes};
    }
    static void run_later(Console& console, milliseconds time = later) {
        console.run(Console::Clock::now() + time, std::nullopt);
    }

    base::UniqueFd read_end_;
    base::UniqueFd write_end_;
    base::UniqueFd null_;
    std::string text_;
};

TEST_F(ConsoleTest, LinesOfSeveralWorkersStayWhole) {
    Console console = piped({.workers = 2});
    console.take(output(0, "one "));
    console.take(output(1, "other\n"));
    console.take(output(0, "line\nnext"));
    EXPECT_EQ(read(), "other\none line\n");
    console.take(output(0, ""));
    EXPECT_EQ(read(), "other\none line\nnext\n");
}

TEST_F(ConsoleTest, TheOnlyWorkersBytesPassAtOnceAndAsTheyAre) {
    Console console = piped({.workers = 1});
    console.take(output(0, "\r10 %\r20"));
    EXPECT_EQ(read(), "\r10 %\r20");
    console.take(output(0, " %"));
    console.take(output(0, ""));
    EXPECT_EQ(read(), "\r10 %\r20 %\n");
}

TEST_F(ConsoleTest, AnUnfinishedLineShowsAfterAWhileAndGoesOn) {
    Console console = piped({.workers = 2, .prefix_template = "$rank:"});
    console.take(output(0, "begin"));
    EXPECT_TRUE(console.next_due());
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_EQ(read(), "");
    run_later(console);
    EXPECT_EQ(read(), "0:begin");
    EXPECT_FALSE(console.next_due());
    console.take(output(0, " middle"));
    run_later(console);
    console.take(output(0, " end\nnext\n"));
    EXPECT_EQ(read(), "0:begin middle end\n0:next\n");
}

TEST_F(ConsoleTest, AnotherUnfinishedLineWaitsAndAWholeOneDoesNot) {
    Console console = piped({.workers = 3, .prefix_template = "$rank:"});
    console.take(output(0, "zero"));
    run_later(console);
    console.take(output(1, "one"));
    run_later(console);
    EXPECT_EQ(read(), "0:zero");
    EXPECT_FALSE(console.next_due()) << "nothing can be done";
    console.take(output(2, "two\n"));
    EXPECT_EQ(read(), "0:zero\n2:two\n");
    console.take(output(0, " goes on\n"));
    console.take(output(1, " too\n"));
    EXPECT_EQ(read(), "0:zero\n2:two\n0: goes on\n1:one too\n");
}

TEST_F(ConsoleTest, OneErrorOfSeveralRanksShowsOnce) {
    Console console = piped({.workers = 3, .prefix_template = "$rank:"});
    console.take(output(0, "ddp::UsageError: both\nddp::UsageError: mine\n"));
    console.take(output(1, "before\nddp::UsageError: both\nddp::Errors: no error\n"));
    console.take(output(2, "before\nddp::Use"));
    console.take(output(2, "Error: other\nddp::Errors: no error\nddp::UsageError: both"));
    console.take(output(2, ""));
    EXPECT_EQ(read(),
              "0:ddp::UsageError: both\n0:ddp::UsageError: mine\n"
              "1:before\n1:ddp::Errors: no error\n"
              "2:before\n2:ddp::UseError: other\n2:ddp::Errors: no error\n"
              "2:ddp::UsageError: both\n");
    console.take(StateMessage{WorkerState::started, 1, 77});  // of another attempt
    console.take(output(1, "ddp::UsageError: both\n"));
    EXPECT_EQ(read().substr(read().rfind("1:")), "1:ddp::UsageError: both\n");
}

TEST_F(ConsoleTest, AProgressBarOnAPipeIsItsLastState) {
    Console console = piped({.workers = 2});
    console.take(output(0, "\r10 %"));
    console.take(output(0, "\r20 %"));
    run_later(console);
    EXPECT_EQ(read(), "");
    console.take(output(0, "\r30 %\n"));
    EXPECT_EQ(read(), "") << "another bar may be drawn below it";
    run_later(console, 2 * later);
    EXPECT_EQ(read(), "30 %\n");
    console.take(output(0, "\r10 %\n"));
    console.take(output(0, "done\n"));
    EXPECT_EQ(read(), "30 %\n10 %\ndone\n");
}

TEST_F(ConsoleTest, ABarOnAPipeIsALineOnceItHasEndedWhateverOthersWrite) {
    Console console = piped({.workers = 2});
    console.take(output(0, "\r10 %\r100 %\n"));
    console.take(output(1, "begun"));
    const auto now = Console::Clock::now() + later;
    console.take(output(1, " and done\n"));
    ASSERT_TRUE(console.next_due());
    EXPECT_LE(*console.next_due(), now);
    console.run(now, std::nullopt);
    EXPECT_EQ(read(), "begun and done\n100 %\n");
    EXPECT_FALSE(console.next_due());
}

// As where a bar is on stderr, and print() comes after it.
TEST_F(ConsoleTest, ABarThatHasEndedComesBeforeWhatItsRankPrintsThen) {
    Console console({.workers = 2}, write_end_.get(), write_end_.get());
    console.take(output(0, "\r10 %\r100 %\n", Stream::err));
    console.take(output(1, "\r50 %\n", Stream::err));
    console.take(output(0, "loss 0.1\n"));
    EXPECT_EQ(read(), "100 %\nloss 0.1\n");
}

TEST_F(ConsoleTest, ALineThatABarHasEndedAndClearedIsInNobodysWay) {
    Console console = piped({.workers = 2});
    console.take(output(0, "Loading"));
    run_later(console);
    console.take(output(0, "\r       \r\n"));
    console.take(output(1, "Password: "));
    ASSERT_TRUE(console.next_due());
    run_later(console, 2 * later);
    run_later(console, 40 * later);
    EXPECT_EQ(read(), "Loading\r       \r\nPassword: ");
}

TEST_F(ConsoleTest, BarsWithinBarsOnAPipeAreTheirLastStates) {
    Console console = piped({.workers = 2});
    for (int i = 0; i < 5; ++i) {
        const std::string number = std::to_string(i);
        console.take(output(0, "\router " + number));
        console.take(output(0, "\n"));
        console.take(output(0, "\r  inner " + number));
        console.take(output(0, "\x1b[A"));
        run_later(console, (i + 1) * later);
    }
    EXPECT_EQ(read(), "");
    console.take(output(0, ""));
    EXPECT_EQ(read(), "outer 4\n  inner 4\n");
}

TEST_F(ConsoleTest, ThePrefixOnAPipeIsThatOfTeeOrTheTemplate) {
    ConsoleSettings settings{.workers = 2, .role = "trainer"};
    settings.tee.listed[1] = Streams::out;
    Console console = piped(settings);
    console.take(output(0, "a\n"));
    console.take(output(1, "b\nc\n"));
    EXPECT_EQ(read(), "a\n[trainer1]:b\n[trainer1]:c\n");
}

TEST_F(ConsoleTest, ThePidOfTheRunningAttemptIsInThePrefix) {
    Console console = piped({.workers = 1, .prefix_template = "$pid "});
    console.take(StateMessage{WorkerState::started, 0, 11});
    console.take(output(0, "a\n"));
    console.take(output(0, ""));
    console.take(StateMessage{WorkerState::ended, 0, 11});
    console.take(StateMessage{WorkerState::started, 0, 22});
    console.take(output(0, "b\n"));
    EXPECT_EQ(read(), "11 a\n22 b\n");
}

TEST_F(ConsoleTest, BytesAreShownWhenTheyAreWrittenAndNotBefore) {
    Console console = piped({.workers = 2});
    const std::string line(99'999, 'x');
    console.take(output(1, line + "\n"));  // a pipe holds 64 KiB
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_TRUE(console.take_shown().empty());
    EXPECT_FALSE(console.idle());
    EXPECT_EQ(console.wanted()[0].fd, write_end_.get());
    read();
    console.run(Console::Clock::now() + seconds{10}, std::nullopt);
    read();
    const auto shown = console.take_shown();
    ASSERT_EQ(shown.size(), 1U);
    EXPECT_EQ(shown[0].local_rank, 1);
    EXPECT_EQ(shown[0].bytes, 100'000U);
    EXPECT_TRUE(console.take_shown().empty());
    EXPECT_EQ(text_, line + "\n") << "a pipe loses nothing";
}

TEST_F(ConsoleTest, AnUnfinishedLineTakesNoCredit) {
    Console console = piped({.workers = 2});
    console.take(output(0, std::string(200'000, 'x')));
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_EQ(console.take_shown().size(), 1U);
}

class ConsoleOnATerminal : public ConsoleTest {
protected:
    Console on_terminal(ConsoleSettings settings) {
        return {std::move(settings), terminal_.theirs(), terminal_.theirs()};
    }
    std::string screen() { return screen_of(terminal_.read()); }

    PseudoTerminal terminal_;
};

TEST_F(ConsoleOnATerminal, LinesHaveTheirRankBeforeThem) {
    Console console = on_terminal({.workers = 2});
    console.take(output(1, "a\nb\n"));
    console.take(output(0, "c\n", Stream::err));
    console.say("text\nmore");
    EXPECT_EQ(screen(), "[1] a\n[1] b\n[0] c\nddp-launch: text\nddp-launch: more\n");
    EXPECT_EQ(terminal_.read().find('\x1b'), std::string::npos) << "NO_COLOR is set";
}

TEST_F(ConsoleOnATerminal, ThePrefixIsColoured) {
    ::setenv("NO_COLOR", "", 1);
    Console console = on_terminal({.workers = 2});
    console.take(output(1, "a\n"));
    EXPECT_EQ(terminal_.read(), coloured("[1] ", 1) + "a\n");
}

TEST_F(ConsoleOnATerminal, ProgressBarsAreRedrawnBelowOtherLines) {
    Console console = on_terminal({.workers = 2});
    console.take(output(0, "\r10 %"));
    console.take(output(1, "\r50 %", Stream::err));
    run_later(console);
    EXPECT_EQ(screen(), "[0] 10 %\n[1] 50 %\n");
    console.take(output(0, "\r20 %"));
    console.take(output(1, "a line\n"));
    run_later(console, 2 * later);
    EXPECT_EQ(screen(), "[1] a line\n[0] 20 %\n[1] 50 %\n");
    console.take(output(1, "\r100 %\n", Stream::err));
    run_later(console, 3 * later);
    console.finish();
    EXPECT_EQ(screen(), "[1] a line\n[1] 100 %\n[0] 20 %\n");
}

TEST_F(ConsoleOnATerminal, BarsWithinBarsAreRowsBelowEachOther) {
    Console console = on_terminal({.workers = 2});
    console.take(output(0, "\router 1\n\r  inner 1\x1b[A"));
    console.take(output(1, "\rother"));
    run_later(console);
    EXPECT_EQ(screen(), "[0] outer 1\n[0]   inner 1\n[1] other\n");
    console.take(output(0, "\n\r         \r\x1b[A\router 2"));
    run_later(console, 2 * later);
    EXPECT_EQ(screen(), "[0] outer 2\n[1] other\n");
}

TEST_F(ConsoleOnATerminal, ABarIsNotRedrawnTooOften) {
    Console console = on_terminal({.workers = 2});
    const auto now = Console::Clock::now() + later;
    console.take(output(0, "\r10 %"));
    console.run(now, std::nullopt);
    console.take(output(0, "\r20 %"));
    console.run(now + Console::redraw_time / 2, std::nullopt);
    EXPECT_EQ(screen(), "[0] 10 %\n");
    console.run(now + Console::redraw_time, std::nullopt);
    EXPECT_EQ(screen(), "[0] 20 %\n");
}

TEST_F(ConsoleOnATerminal, ADumbOneIsTreatedAsAPipe) {
    ::setenv("TERM", "dumb", 1);
    Console console = on_terminal({.workers = 2});
    console.take(output(0, "\r10 %"));
    console.take(output(1, "begin"));
    run_later(console);
    console.take(output(1, " end\n"));
    console.take(output(0, "\r20 %\n"));
    console.finish();
    EXPECT_EQ(terminal_.read(), "[1] begin end\n[0] 20 %\n");
}

TEST_F(ConsoleOnATerminal, WhatAStuckOneCannotShowIsCountedAndDropped) {
    Console console = on_terminal({.workers = 2});
    std::string lines;
    for (int i = 0; i < 10'000; ++i) lines += "line\n";
    console.take(output(0, lines));
    EXPECT_FALSE(console.idle());
    const auto deadline = base::Deadline::after(testing::patience);
    std::vector<ShownMessage> shown;
    while (shown.empty() && !deadline.passed()) {
        ::usleep(10'000);
        console.run(Console::Clock::now(), std::nullopt);
        shown = console.take_shown();
    }
    EXPECT_EQ(shown.size(), 1U) << "the worker may go on";
    console.take(output(1, lines));
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_EQ(console.take_shown().size(), 1U);
    for (int i = 0; i < 1000 && !console.idle(); ++i) {  // somebody reads again
        terminal_.read();
        console.run(Console::Clock::now(), std::nullopt);
    }
    console.finish();
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_NE(screen().find("ddp-launch: 10000 lines were not shown"), std::string::npos);
}

TEST_F(ConsoleOnATerminal, OneThatIsGoneHoldsUpNobody) {
    Console console = on_terminal({.workers = 2});
    terminal_.hang_up();
    console.take(output(0, std::string(100'000, 'x') + "\n"));
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_EQ(console.take_shown().size(), 1U);
    console.finish();
    console.run(Console::Clock::now(), std::nullopt);
    EXPECT_TRUE(console.idle());
}

}  // namespace
}  // namespace ddp::launcher
