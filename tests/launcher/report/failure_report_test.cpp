// The words of a report, line by line.
#include "launcher/report/failure_report.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/worker_ends.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;
using testing::because_of;
using testing::exited;
using ::testing::HasSubstr;
using testing::killed;
using testing::lines_of;
using ::testing::Not;
using testing::stopped;

std::string text_of(const std::vector<WorkerEnd>& ended,
                    const JobFacts& facts = {.host = "node7"}) {
    const auto root_cause = whose_fault(ended);
    return root_cause ? failure_text(ended, *root_cause, facts) : "nobody failed";
}

TEST(FailureText, IsTheRootCauseItsCircumstancesAndTheOthers) {
    WorkerEnd root = killed(1, SIGSEGV);
    root.status.core_dumped = true;
    root.ran_for = milliseconds{72'300};
    root.gpu = "cuda:0 = GPU 1";
    root.error = contract::ErrorReport{"UsageError: no data\nin ./data\n"};
    root.last_stderr = "loading\nno data\n";
    WorkerEnd late = stopped(killed(6, SIGKILL), SIGKILL);
    late.stop_took = milliseconds{30'010};
    WorkerEnd second = exited(5, 3);
    second.ran_for = milliseconds{72'400};
    const std::string text =
        text_of({exited(8, 0), root, second, because_of(3, 1), stopped(killed(4, SIGTERM), SIGTERM),
                 stopped(killed(0, SIGTERM), SIGTERM), stopped(killed(2, SIGTERM), SIGTERM),
                 stopped(exited(7, 0), SIGTERM), late},
                {.host = "node7",
                 .attempt = 2,
                 .attempts = 3,
                 .hints = {"look there"},
                 .report_file = "logs/run/report.json"});
    EXPECT_EQ(text,
              "rank 1 (local rank 1, pid 101) failed: SIGSEGV (signal 11), core dumped\n"
              "  when     after 1 min 12 s, attempt 2 of 3\n"
              "  where    host node7, cuda:0 = GPU 1\n"
              "  error    UsageError: no data\n"
              "           in ./data\n"
              "  stderr   loading\n"
              "           no data\n"
              "  hint     look there\n"
              "  failed   rank 5 (exit code 3 after 1 min 12 s)\n"
              "  left     rank 3 (because of rank 1, exit code 82)\n"
              "  stopped  rank 6 (SIGKILL, took 30 s); rank 0, 2, 4 (SIGTERM, took\n"
              "           0.2 s); rank 7 (exit code 0 after SIGTERM, took 0.2 s)\n"
              "  fine     rank 8 (exit code 0)\n"
              "  report   logs/run/report.json");
}

TEST(FailureText, FitsIn80ColumnsWithManyRanksAndLongHints) {
    std::vector<WorkerEnd> ended{exited(0, 1)};
    for (int rank = 1; rank < 200; ++rank) {
        ended.push_back(stopped(killed(rank, rank % 2 == 0 ? SIGTERM : SIGKILL), SIGKILL));
    }
    const std::string text =
        text_of(ended, {.host = "node7",
                        .hints = {std::string(30, 'a') + " " + std::string(40, 'b') + " " +
                                  std::string(10, 'c')}});
    for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 68U) << line;
}

TEST(FailureText, IsNotWrappedWhereNoTerminalIs) {
    std::vector<WorkerEnd> ended{exited(0, 1)};
    for (int rank = 1; rank < 99; rank += 2) ended.push_back(stopped(killed(rank, 15), 15));
    const std::string hint = std::string(30, 'a') + " " + std::string(40, 'b');
    const JobFacts facts{.host = "node7", .hints = {hint}, .lines = Lines::whole};
    const std::vector<std::string> lines = lines_of(text_of(ended, facts));
    ASSERT_EQ(lines.size(), 5U);
    EXPECT_EQ(lines[3], "  hint     " + hint);
    EXPECT_THAT(lines[4], HasSubstr(", 95, 97 (SIGTERM, took 0.2 s)"));
    EXPECT_EQ(lines_of(stop_text(SIGTERM, ended, {.lines = Lines::whole})).size(), 3U);
}

TEST(FailureText, ACommandIsNeverBroken) {
    const std::string command = "--wrap='1:gdb -batch -ex run -ex bt --args'";
    const std::string text =
        text_of({exited(1, 1)}, {.host = "node7",
                                 .hints = {"the process's stack by " + command +
                                           ", or by another way, is what "
                                           "helps"}});
    EXPECT_THAT(text, HasSubstr("  hint     the process's stack by\n           " + command +
                                ", or by\n           another way, is what helps"));
}

TEST(FailureText, WhatSeveralRanksSayIsSaidOnce) {
    std::vector<WorkerEnd> ended{exited(2, 1), exited(0, 1), exited(1, 1), exited(3, 7),
                                 exited(5, 1)};
    for (WorkerEnd& end : ended) {
        end.error = contract::ErrorReport{"UsageError: no data\nin ./data"};
        end.last_stderr = "UsageError: no data\nin ./data\n";
    }
    ended[3].error = contract::ErrorReport{"UsageError: another"};
    const std::string text = text_of(ended);
    EXPECT_THAT(text, HasSubstr("  error    ranks 0-2, 5: UsageError: no data\n"
                                "           in ./data\n"
                                "  failed   "));
}

TEST(FailureText, OfARankThatSaysNothingTheOthersSayWhatWasTheMatter) {
    WorkerEnd first = because_of(0, 2);
    first.error->message = "TimeoutError: rank 0 is waiting for rank 2";
    const WorkerEnd hangs = stopped(killed(2, SIGTERM), SIGTERM);
    EXPECT_THAT(text_of({first, hangs}),
                HasSubstr("  error    rank 0: TimeoutError: rank 0 is waiting for rank 2\n"
                          "  left     "));
    EXPECT_THAT(text_of({first, because_of(1, 2), because_of(3, 2), hangs}),
                HasSubstr("  error    ranks 1, 3: PeerError: gone\n"));
    WorkerEnd said = hangs;
    said.error = contract::ErrorReport{"its own"};
    EXPECT_THAT(text_of({first, said}), HasSubstr("  error    its own\n"));
    EXPECT_THAT(text_of({first, exited(2, 1)}), Not(HasSubstr("error"))) << "it failed by itself";
}

TEST(FailureText, RanksInARowAreARange) {
    std::vector<WorkerEnd> ended{exited(3, 1)};
    for (const int rank : {9, 5, 0, 7, 1, 8, 2}) {
        ended.push_back(stopped(killed(rank, SIGTERM), SIGTERM));
    }
    EXPECT_THAT(text_of(ended), HasSubstr("stopped  rank 0-2, 5, 7-9 (SIGTERM, took 0.2 s)"));
}

TEST(FailureText, ARankThatItsPeersNameIsSaidToHaveMadeThemLeave) {
    const std::string text =
        text_of({because_of(0, 2), because_of(1, 2), stopped(killed(2, SIGKILL), SIGKILL)});
    EXPECT_THAT(text, HasSubstr("rank 2 (local rank 2, pid 102) made the others leave: it was "
                                "stopped by SIGKILL\n"));
    EXPECT_THAT(text, HasSubstr("left     rank 0, 1 (because of rank 2, exit code 82)"));
}

TEST(FailureText, SaysNothingTwice) {
    WorkerEnd root = exited(0, 1);
    root.error = contract::ErrorReport{"ValueError: x", {}, "File a\n  f()\nValueError: x\n"};
    EXPECT_THAT(text_of({root}), HasSubstr("trace    File a\n             f()\n"));
    root.last_stderr = "Traceback\nFile a\n  f()\nValueError: x\n";
    EXPECT_THAT(text_of({root}), Not(HasSubstr("trace")));
    root.last_stderr = "ValueError: x\n";
    EXPECT_THAT(text_of({root}), Not(HasSubstr("stderr")));
}

TEST(FailureText, TabsAndLettersBeyondAsciiStayAsTheyAre) {
    WorkerEnd root = exited(0, 1);
    root.error = contract::ErrorReport{"UsageError: k\u00e4se\tbrot\nin ./data"};
    EXPECT_THAT(text_of({root}), HasSubstr("  error    UsageError: k\u00e4se\tbrot\n"
                                           "           in ./data"));
}

TEST(FailureText, LongWordsOfAWorkerAreCut) {
    WorkerEnd root = exited(0, 1);
    std::string lines;
    for (int i = 0; i < 100; ++i) lines += "line " + std::to_string(i) + "\n";
    root.last_stderr = lines;
    root.error = contract::ErrorReport{std::string(1 << 20, 'x'), {}, lines + "the end"};
    const std::string text = text_of({root});
    EXPECT_LT(text.size(), 6000U);
    EXPECT_THAT(text, HasSubstr("stderr   line 80\n"));
    EXPECT_THAT(text, HasSubstr("trace    line 93\n"));
    EXPECT_THAT(text, Not(HasSubstr("line 79\n")));
}

TEST(StopText, NamesTheSignalAndHowWorkersTookIt) {
    EXPECT_EQ(
        stop_text(SIGINT,
                  std::vector{stopped(killed(1, SIGINT), SIGINT), stopped(exited(0, 3), SIGINT)},
                  {}),
        "stopped by SIGINT\n"
        "  stopped  rank 1 (SIGINT, took 0.2 s); rank 0 (exit code 3 after\n"
        "           SIGINT, took 0.2 s)");
    EXPECT_EQ(stop_text(SIGTERM, {}, {}), "stopped by SIGTERM");
}

TEST(StopText, SaysWhoHeldUpTheJob) {
    const HangFacts hang{
        .kind = "missing", .ranks = {1}, .text = "rank 1 holds up rank 0\n  rank 1"};
    EXPECT_EQ(stop_text(SIGINT, std::vector{stopped(killed(1, SIGINT), SIGINT)}, {.hang = hang}),
              "stopped by SIGINT\n"
              "  hang     rank 1 holds up rank 0\n"
              "             rank 1\n"
              "  stopped  rank 1 (SIGINT, took 0.2 s)");
}

TEST(StopText, OfALostReaderNamesWorkersThatFailedByThemselves) {
    const std::vector ended{exited(0, 9), stopped(killed(1, SIGPIPE), SIGPIPE)};
    const std::vector<std::string> lines =
        lines_of(stop_text(SIGPIPE, ended, {.lines = Lines::whole}));
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_THAT(lines[0], HasSubstr("nobody reads stdout any more"));
    EXPECT_THAT(lines[1], HasSubstr("  failed   rank 0 (exit code 9"));
}

TEST(DescribeTime, HasTheUnitsThatMatter) {
    EXPECT_EQ(describe_time(milliseconds{0}), "0 ms");
    EXPECT_EQ(describe_time(milliseconds{99}), "99 ms");
    EXPECT_EQ(describe_time(milliseconds{100}), "0.1 s");
    EXPECT_EQ(describe_time(milliseconds{249}), "0.2 s");
    EXPECT_EQ(describe_time(milliseconds{9'990}), "10.0 s");
    EXPECT_EQ(describe_time(milliseconds{12'900}), "12 s");
    EXPECT_EQ(describe_time(milliseconds{65'000}), "1 min 5 s");
    EXPECT_EQ(describe_time(std::chrono::minutes{123}), "2 h 3 min");
}

}  // namespace
}  // namespace ddp::launcher
