// The users' test support: whatever goes wrong in a rank becomes a failure that names the rank.
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

namespace {

using namespace std::chrono_literals;
using ddp::ProcessGroup;
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

Output run_failing(const std::string& filter) {
    const std::string command =
        std::string(DDP_FAILING_RANKS) + " --gtest_filter=" + filter + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    Output output{0, {}};
    char buffer[4096];
    while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
        output.text.append(buffer, got);
    }
    output.status = ::pclose(pipe);
    return output;
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
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body), "rank 1: exception left the body: no weights");
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
    int alive[2];
    ASSERT_EQ(::pipe2(alive, O_CLOEXEC), 0);
    const auto start = std::chrono::steady_clock::now();
    run_ranks(2, [](ProcessGroup&) {
        if (::fork() == 0) {
            for (;;) ::pause();  // holds the rank's report pipe, and ours
        }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s) << "waited for the whole timeout";
    ::close(alive[1]);
    pollfd gone{alive[0], POLLIN, 0};
    EXPECT_EQ(::poll(&gone, 1, 30'000), 1) << "a rank's child still lives";
    ::close(alive[0]);
}

TEST(RunRanks, KillsARankThatDoesNotEnd) {
    const auto body = [](ProcessGroup& group) {
        while (group.rank() == 1) ::pause();
    };
    EXPECT_NONFATAL_FAILURE(run_ranks(2, body, {.timeout = 300ms}),
                            "rank 1: still ran after 300 ms and was killed");
}

TEST(RunRanks, LeavesNoChildBehind) {
    run_ranks(4, [](ProcessGroup&) {});
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
}

}  // namespace
