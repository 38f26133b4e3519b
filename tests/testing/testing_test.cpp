// The users' test support: whatever goes wrong in a rank becomes a failure that names the rank.
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

namespace {

using namespace std::chrono_literals;
using ddp::ProcessGroup;
using ddp::testing::made_once;
using ddp::testing::run_ranks;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunRanks, PassesWhenEveryRankDoes) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_EQ(group.size(), 3);
        EXPECT_EQ(group.local_size(), 3);
        EXPECT_EQ(group.local_rank(), group.rank());
    });
}

struct Output {
    int status;
    std::string text;
};

Output run(const std::string& command) {
    FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    Output output{0, {}};
    char buffer[4096];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
        output.text.append(buffer, got);
    }
    output.status = ::pclose(pipe);
    return output;
}

Output run_failing(const std::string& filter) {
    return run(std::string(DDP_FAILING_RANKS) + " --gtest_filter=" + filter);
}

std::size_t count(const std::string& text, const std::string& word) {
    std::size_t found = 0;
    for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
    return found;
}

TEST(RunRanks, FailsTheTestForAFailedAssertionAndNamesTheRank) {
    const Output expect = run_failing("FailingRanks.Expect");
    EXPECT_NE(expect.status, 0);
    EXPECT_THAT(expect.text, HasSubstr("rank 1: "));
    EXPECT_THAT(expect.text, HasSubstr("failing_ranks.cpp:"));
    EXPECT_THAT(expect.text, HasSubstr("said rank one"));
    EXPECT_THAT(expect.text, Not(HasSubstr("rank 0: ")));
    EXPECT_THAT(expect.text, HasSubstr("1 FAILED TEST"));
}

TEST(RunRanks, EndsTheBodyOfTheRankWhoseAssertFailed) {
    const Output output = run_failing("FailingRanks.Assert");
    EXPECT_NE(output.status, 0);
    EXPECT_THAT(output.text, HasSubstr("rank 0: "));
    EXPECT_THAT(output.text, Not(HasSubstr("did not end the body")));
}

TEST(RunRanks, ReportsAnEscapedException) {
    const auto body = [](ProcessGroup& group) {
        if (group.rank() == 1) throw std::runtime_error("no weights");
    };
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body),
                            "rank 1: exception left the body: std::runtime_error: no weights");
}

TEST(RunRanks, ReportsACauseBeforeItsConsequences) {
    const Output output = run_failing("FailingRanks.LoseOne");
    EXPECT_NE(output.status, 0);
    const auto cause = output.text.find("rank 1: exception left the body: std::runtime_error");
    const auto consequence = output.text.find("rank 0: exception left the body: ddp::PeerError");
    EXPECT_NE(cause, std::string::npos) << output.text;
    EXPECT_NE(consequence, std::string::npos) << output.text;
    EXPECT_LT(cause, consequence);
}

// By the errors of those that wait for it: the group's deadline comes before the test's.
TEST(RunRanks, NamesTheRankThatOthersWaitFor) {
    const Output output = run_failing("FailingRanks.Hang");
    EXPECT_NE(output.status, 0);
    EXPECT_THAT(output.text, HasSubstr("rank 1: still ran after 2 s and was killed"));
    EXPECT_THAT(output.text, HasSubstr("rank 0: exception left the body: ddp::TimeoutError"));
    EXPECT_THAT(output.text, HasSubstr("is waiting for rank 1"));
    EXPECT_THAT(output.text, Not(HasSubstr("rank 0: still ran")));
}

TEST(RunRanks, ReportsADeathBySignal) {
    const auto body = [](ProcessGroup& group) {
        if (group.rank() == 1) ::raise(SIGKILL);
    };
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body), "rank 1: ended by SIGKILL (signal 9)");
    run_ranks(2, body, {.may_die = {1}});
}

TEST(RunRanks, ReportsAnExitInTheMiddle) {
    const auto body = [](ProcessGroup& group) {
        if (group.rank() == 0) ::_exit(3);
    };
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body), "rank 0: ended with exit code 3");
}

TEST(RunRanks, ReportsARankThatLeavesBeforeItsBodyIsFinished) {
    const auto body = [](ProcessGroup& group) {
        if (group.rank() == 1) ::_exit(0);  // and with it every assertion that was to come
    };
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body), "rank 1: left with exit code 0 before its body");
}

TEST(RunRanks, EndsWithItsRanksAndLeavesNoneOfTheirChildren) {
    const std::string path = made_once([] {
        std::string name = ::testing::TempDir() + "ddp-testing-XXXXXX";
        ::close(::mkstemp(name.data()));
        return name;
    });
    const auto start = std::chrono::steady_clock::now();
    run_ranks(2, [&](ProcessGroup& group) {
        const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        EXPECT_EQ(::flock(file, LOCK_SH), 0);
        group.barrier().wait();
        if (::fork() == 0) {
            for (;;) ::pause();  // holds the rank's output, and the lock
        }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s) << "waited for the whole timeout";
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(::flock(file, LOCK_EX | LOCK_NB), 0) << "a rank's child still lives";
    ::close(file);
    ::unlink(path.c_str());
}

TEST(RunRanks, KillsARankThatDoesNotEnd) {
    const auto body = [](ProcessGroup& group) {
        while (group.rank() == 1) ::pause();
    };
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body, {.timeout = 1s}),
                            "rank 1: still ran after 1 s and was killed");
}

TEST(RunRanks, LeavesNoChildBehind) {
    run_ranks(4, [](ProcessGroup&) {});
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
}

TEST(RunRanks, ShowsOfItsRanksOnlyWhatTheirBodiesPrint) {
    const Output output = run_failing("GoodRanks.DieAsTheyMay");
    EXPECT_EQ(output.status, 0) << output.text;
    EXPECT_EQ(count(output.text, "[ RUN "), 1U) << output.text;
    EXPECT_EQ(count(output.text, "before the call"), 1U) << output.text;
    EXPECT_EQ(count(output.text, "in the body"), 1U) << output.text;
    EXPECT_THAT(output.text, Not(HasSubstr("ddp-launch")));
    EXPECT_THAT(output.text, Not(HasSubstr("SIGKILL")));
}

TEST(RunRanks, RunsOneTestInARankHoweverTheProgramWasStarted) {
    const std::string report = ::testing::TempDir() + "ddp-testing-" + std::to_string(::getpid());
    const Output output =
        run("GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 " + std::string(DDP_FAILING_RANKS) +
            " --gtest_filter='GoodRanks.*' --gtest_repeat=3 --gtest_shuffle --gtest_output=xml:" +
            report);
    EXPECT_EQ(output.status, 0) << output.text;
    EXPECT_THAT(output.text, Not(HasSubstr("another test's rank")));
    EXPECT_THAT(run("cat " + report).text, HasSubstr("<testsuites"));
    ::unlink(report.c_str());
}

TEST(RunRanks, SaysThatARankHasNotComeToItsCall) {
    const Output output = run_failing("FailingRanks.ComeAnotherWay");
    EXPECT_NE(output.status, 0);
    EXPECT_THAT(output.text, HasSubstr("rank 0: ended with exit code 1"));
    EXPECT_THAT(output.text, HasSubstr("this worker ended before it came to run_ranks() of "
                                       "FailingRanks.ComeAnotherWay number 1 at "));
}

TEST(RunRanks, SaysWhichLauncherIsMissing) {
    const Output output = run("DDP_LAUNCH=/no/such/launcher " + std::string(DDP_FAILING_RANKS) +
                              " --gtest_filter=FailingRanks.Expect");
    EXPECT_NE(output.status, 0);
    EXPECT_THAT(output.text, HasSubstr("DDP_LAUNCH is /no/such/launcher, which is no program"));
}

TEST(RunRanks, MakesNothingOnceInABody) {
    run_ranks(1, [](ProcessGroup&) {
        EXPECT_THROW(made_once([] { return std::string("too late"); }), ddp::UsageError);
        EXPECT_THROW(run_ranks(1, [](ProcessGroup&) {}), ddp::UsageError);
    });
}

TEST(RankTest, NeedsNoGoogleTest) {
    const Output output = run(std::string(DDP_PLAIN_RANKS) + " good fails good");
    EXPECT_EQ(output.status, 0);
    EXPECT_EQ(output.text,
              "good: 0 failures\nfails: 1 failures\nrank 1: on purpose\n"
              "good: 0 failures\n");
}

}  // namespace
