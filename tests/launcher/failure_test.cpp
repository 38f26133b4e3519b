// The whose-fault rule as a table: ends in order of detection, and who is to blame.
#include "launcher/failure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

WorkerEnd ended(int rank, ExitStatus status) {
    WorkerEnd end;
    end.rank = rank;
    end.local_rank = rank;
    end.pid = 100 + rank;
    end.status = status;
    return end;
}
WorkerEnd exited(int rank, int code) { return ended(rank, {.code = code}); }
WorkerEnd killed(int rank, int signal) { return ended(rank, {.signal = signal}); }
WorkerEnd because_of(int rank, int peer) {
    WorkerEnd end = exited(rank, 82);
    end.error = contract::ErrorReport{"PeerError: gone", peer};
    return end;
}
WorkerEnd aborted_because_of(int rank, int peer) {
    WorkerEnd end = killed(rank, SIGABRT);
    end.error = contract::ErrorReport{"PeerError: gone", peer};
    return end;
}
WorkerEnd stopped(WorkerEnd end, int signal) {
    end.stopped_with = signal;
    return end;
}

struct Case {
    const char* name;
    std::vector<WorkerEnd> ended;  // in order of detection
    int rank;                      // -1: nobody failed
    int exit_code;
};

std::vector<Case> table() {
    return {
        {"all well", {exited(1, 0), exited(0, 0)}, -1, 0},
        {"no worker at all", {}, -1, 0},
        {"one exit code", {exited(0, 0), exited(1, 7)}, 1, 7},
        {"one signal", {killed(1, SIGSEGV), exited(0, 0)}, 1, 139},
        {"the first of two failures", {exited(2, 3), exited(0, 4)}, 2, 3},
        {"not one that left because of a peer", {because_of(0, 1), killed(1, SIGKILL)}, 1, 137},
        {"83 is a failure of its own", {because_of(0, 1), exited(1, 83)}, 1, 83},
        {"not one that we stopped", {exited(1, 1), stopped(killed(0, SIGTERM), SIGTERM)}, 1, 1},
        {"a stopped one that exits with a code is no root either",
         {because_of(1, 2), stopped(exited(0, 3), SIGTERM), stopped(killed(2, SIGKILL), SIGKILL)},
         2,
         82},
        {"all left: whom they name", {because_of(0, 2), because_of(2, 1), because_of(1, 2)}, 2, 82},
        {"all left: the one that left with 0 too early", {exited(0, 0), because_of(1, 0)}, 0, 82},
        {"a plain main that aborts because of a peer",
         {aborted_because_of(0, 1), exited(1, 3)},
         1,
         3},
        {"an abort of its own", {killed(0, SIGABRT), because_of(1, 0)}, 0, 134},
        {"all left, nobody is named", {exited(1, 82), exited(0, 82)}, 1, 82},
        {"all left, a stranger is named", {because_of(1, 9), because_of(0, 9)}, 1, 82},
        {"SIGTERM from elsewhere is a failure", {killed(0, SIGTERM)}, 0, 143},
    };
}

TEST(WhoseFault, TheRootCauseIsTheFirstFailureThatIsNotBecauseOfAPeer) {
    for (const Case& one : table()) {
        const auto verdict = whose_fault(one.ended);
        EXPECT_EQ(verdict ? verdict->rank : -1, one.rank) << one.name;
        EXPECT_EQ(verdict ? verdict->exit_code : 0, one.exit_code) << one.name;
    }
}

TEST(WhoseFault, TheReportNamesRankPidAndHowItEnded) {
    const auto verdict = whose_fault(std::vector{exited(0, 0), killed(1, SIGSEGV)});
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->report, "rank 1 (local rank 1, pid 101) failed: SIGSEGV (signal 11)");
}

TEST(WhoseFault, TheReportHasTheMessageOfTheErrorFile) {
    WorkerEnd root = exited(1, 1);
    root.error = contract::ErrorReport{"UsageError: no data\nin ./data\n", std::nullopt};
    const auto verdict = whose_fault(std::vector{root});
    ASSERT_TRUE(verdict);
    EXPECT_THAT(verdict->report, HasSubstr("exit code 1\n  UsageError: no data\n  in ./data"));
    EXPECT_NE(verdict->report.back(), '\n');
}

TEST(WhoseFault, ALongMessageIsCut) {
    WorkerEnd root = exited(0, 1);
    root.error = contract::ErrorReport{std::string(1 << 20, 'x'), std::nullopt};
    const auto verdict = whose_fault(std::vector{root});
    ASSERT_TRUE(verdict);
    EXPECT_LT(verdict->report.size(), 5000U);
}

TEST(WhoseFault, TheReportSaysWhatBecameOfTheOthers) {
    const auto verdict = whose_fault(std::vector{exited(4, 0), exited(1, 7), because_of(3, 1),
                                                 stopped(killed(2, SIGKILL), SIGKILL),
                                                 stopped(exited(0, 0), SIGTERM)});
    ASSERT_TRUE(verdict);
    EXPECT_THAT(
        verdict->report,
        HasSubstr("then: rank 0 ended with exit code 0 after SIGTERM, rank 2 was stopped by "
                  "SIGKILL, rank 3 left with exit code 82"));
    EXPECT_THAT(verdict->report, Not(HasSubstr("rank 4")));
}

TEST(WhoseFault, AStopByTheUserNamesTheSignalAndHowWorkersTookIt) {
    EXPECT_EQ(
        describe_stop(
            SIGINT, std::vector{stopped(killed(1, SIGINT), SIGINT), stopped(exited(0, 3), SIGINT)}),
        "stopped by SIGINT; rank 0 ended with exit code 3 after SIGINT, rank 1 was stopped by "
        "SIGINT");
}

}  // namespace
}  // namespace ddp::launcher
