// The whose-fault rule as a table: ends in order of detection, and who is to blame.
#include "launcher/report/failure.hpp"

#include "launcher/worker_ends.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ddp::launcher {
namespace {

using testing::aborted_because_of;
using testing::because_of;
using testing::exited;
using testing::killed;
using testing::stopped;

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
        {"all left: along the chain of those who left",
         {because_of(2, 0), because_of(3, 2), because_of(0, 1),
          stopped(killed(1, SIGTERM), SIGTERM)},
         1,
         82},
        {"all left: a chain that ends with a rank that ended well",
         {exited(1, 0), because_of(0, 1), because_of(2, 0), because_of(3, 0)},
         1,
         82},
        {"all left: a chain by way of one that we stopped as it left",
         {because_of(2, 0), stopped(because_of(0, 1), SIGTERM), stopped(exited(1, 0), SIGTERM)},
         1,
         82},
        {"all left: of two that as many name the first named",
         {because_of(0, 3), because_of(1, 2), exited(2, 0), exited(3, 0)},
         3,
         82},
        {"all left: a circle", {because_of(2, 0), because_of(0, 1), because_of(1, 0)}, 0, 82},
        {"all left: the chain beside the circle",
         {because_of(0, 1), because_of(1, 0), because_of(2, 3), because_of(4, 2), exited(3, 0)},
         3,
         82},
        {"all left: the one that left with 0 too early", {exited(0, 0), because_of(1, 0)}, 0, 82},
        {"a plain main that aborts because of a peer",
         {aborted_because_of(0, 1), exited(1, 3)},
         1,
         3},
        {"an abort of its own", {killed(0, SIGABRT), because_of(1, 0)}, 0, 134},
        {"all left, nobody is named", {exited(1, 82), exited(0, 82)}, 1, 82},
        {"82 without a peer is a failure as any", {exited(0, 82), exited(1, 9)}, 0, 82},
        {"82 that names itself is one, too", {because_of(0, 0), exited(1, 9)}, 0, 82},
        {"82 without a peer is no vote", {because_of(2, 1), exited(1, 82)}, 1, 82},
        {"all left, a stranger is named", {because_of(1, 9), because_of(0, 9)}, 1, 82},
        {"SIGTERM from elsewhere is a failure", {killed(0, SIGTERM)}, 0, 143},
    };
}

TEST(WhoseFault, TheRootCauseIsTheFirstFailureThatIsNotBecauseOfAPeer) {
    for (const Case& one : table()) {
        const auto root_cause = whose_fault(one.ended);
        EXPECT_EQ(root_cause ? root_cause->rank : -1, one.rank) << one.name;
        EXPECT_EQ(root_cause ? root_cause->exit_code : 0, one.exit_code) << one.name;
    }
}

TEST(WhoseFault, TheRootIsPointedAtAndWhetherItsPeersNamedIt) {
    const std::vector own{exited(0, 0), killed(1, SIGSEGV)};
    EXPECT_EQ(whose_fault(own)->index, 1U);
    EXPECT_FALSE(whose_fault(own)->named_by_peers);
    const std::vector named{because_of(0, 2), because_of(1, 2), stopped(killed(2, 9), 9)};
    EXPECT_EQ(whose_fault(named)->index, 2U);
    EXPECT_TRUE(whose_fault(named)->named_by_peers);
}

TEST(FirstFailure, IsToldFromThoseThatHaveEnded) {
    const auto told = [](const std::vector<WorkerEnd>& ended,
                         ErrorTexts texts = ErrorTexts::known) {
        const auto first = first_failure(ended, texts);
        return first ? std::to_string(first->ended) + ": " + first->text : "nobody";
    };
    EXPECT_EQ(told({}), "nobody");
    EXPECT_EQ(told({exited(0, 0), stopped(killed(1, SIGTERM), SIGTERM)}), "nobody");
    EXPECT_EQ(told({exited(0, 0), killed(2, SIGSEGV), exited(1, 3)}), "2: rank 2 failed");
    EXPECT_EQ(told({because_of(0, 3)}), "0: rank 0 left because of rank 3");
    EXPECT_EQ(told({exited(3, 0), because_of(0, 3)}), "3: rank 0 left because of rank 3");
    EXPECT_EQ(told({aborted_because_of(2, 0), because_of(1, 2)}),
              "2: rank 2 left because of rank 0");
    EXPECT_EQ(told({because_of(0, 3), exited(1, 7)}), "1: rank 1 failed");
    EXPECT_EQ(told({exited(0, 82)}), "0: rank 0 failed");
    EXPECT_EQ(told({exited(0, 82)}, ErrorTexts::unknown), "0: rank 0 ended with exit code 82");
    EXPECT_EQ(told({exited(0, 82), exited(1, 7)}, ErrorTexts::unknown), "1: rank 1 failed");
    EXPECT_EQ(told({killed(0, SIGABRT)}, ErrorTexts::unknown), "0: rank 0 failed");
}

TEST(PartOfAWorker, IsToldFromItsEnd) {
    EXPECT_EQ(part_of(exited(0, 3), true), Part::root_cause);
    EXPECT_EQ(part_of(exited(0, 3), false), Part::failed);
    EXPECT_EQ(part_of(killed(0, SIGTERM), false), Part::failed);
    EXPECT_EQ(part_of(because_of(0, 1), false), Part::left);
    EXPECT_EQ(part_of(aborted_because_of(0, 1), false), Part::left);
    EXPECT_EQ(part_of(exited(0, 82), false), Part::failed);
    EXPECT_EQ(part_of(stopped(exited(0, 0), SIGTERM), false), Part::stopped);
    EXPECT_EQ(part_of(stopped(because_of(0, 1), SIGTERM), false), Part::stopped);
    EXPECT_EQ(part_of(exited(0, 0), false), Part::fine);
}

}  // namespace
}  // namespace ddp::launcher
