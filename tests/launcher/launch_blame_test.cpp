// Whom the report blames where one rank's failure is found by others: that rank, whoever ends
// first, and though it may live.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchBlame : public LaunchTest {
protected:
    LaunchResult fail(const std::string& how, const Launch::Words& options = {}) {
        Launch::Words words{"--nproc-per-node=3"};
        words.insert(words.end(), options.begin(), options.end());
        words.insert(words.end(), {DDP_TEST_FAILING_WORKER, how});
        return launch(words);
    }
    // A script in which "blame 1" ends a rank because of rank 1.
    static std::string script(const std::string& text) {
        return "blame() { echo '{\"message\": {\"message\": \"gone\", \"extraInfo\": {\"peer\": "
               "'$1'}}}' > $TORCHELASTIC_ERROR_FILE; exit 82; }; " +
               text;
    }

    TemporaryFolder flags_;
};

// The ranks race to the end: on rank 1 it is its own failure, if it comes there before it is
// stopped.
TEST_F(LaunchBlame, ARankWithoutAGradientIsBlamed) {
    const LaunchResult result = fail("missing_gradient");
    EXPECT_THAT(result.exit_code, AnyOf(1, 82)) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("ddp-launch: rank 1 (local rank 1, pid "),
                      HasSubstr("on rank 1, backward ended without a gradient for layer0"),
                      Not(HasSubstr("rank 0 failed")), Not(HasSubstr("rank 2 failed"))));
}

TEST_F(LaunchBlame, ARankWithoutAGradientIsBlamedThoughTheOthersEndFirst) {
    const LaunchResult result = fail("missing_gradient_stays");
    EXPECT_EQ(result.exit_code, 82) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("left because of rank 1; stopping the others: SIGTERM now"),
                      HasSubstr("made the others leave: it was stopped by SIGTERM\n"),
                      HasSubstr("error    rank"),
                      HasSubstr("on rank 1, backward ended without a gradient for layer0"),
                      HasSubstr("(because of rank 1, exit code 82)"), Not(HasSubstr("failed; ")),
                      Not(HasSubstr("failed: "))));
}

TEST_F(LaunchBlame, ARankThatAllOthersWaitForIsBlamedThoughItLives) {
    const LaunchResult result = fail("hang");
    EXPECT_EQ(result.exit_code, 82) << result.err;
    EXPECT_THAT(
        result.err,
        AllOf(HasSubstr("left because of rank 1; stopping the others: SIGTERM now"),
              HasSubstr("ddp-launch: rank 1 (local rank 1, pid "),
              HasSubstr("made the others leave: it was stopped by SIGTERM\n"),
              HasSubstr("error    rank"), Not(HasSubstr("failed; ")), Not(HasSubstr("failed: "))));
}

// The file system of a tree may hang: only the exit code is looked at.
TEST_F(LaunchBlame, ItIsTheSameWithLogFiles) {
    const LaunchResult result = fail("blame", {"--log-dir=" + flags_.path()});
    EXPECT_EQ(result.exit_code, 82) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("rank 0 ended with exit code 82; stopping the others"),
                      HasSubstr("ddp-launch: rank 1 (local rank 1, pid "),
                      HasSubstr("error    rank 0: ddp::TimeoutError: rank 1 does not come\n"),
                      HasSubstr("left     rank 0 (because of rank 1, exit code 82)")));
}

// Ranks 2 and 3 name rank 0, when it is gone, and rank 0 named rank 1, which lives.
TEST_F(LaunchBlame, ItGoesAlongTheChainOfThoseWhoLeft) {
    const std::string flag = flags_.path() + "/rank_0";
    const LaunchResult result =
        launch({"--nproc-per-node=4", "bash", "-c",
                script("case $RANK in 0) echo $$ > " + flag +
                       "; blame 1;; 1) exec sleep 99;; esac; "
                       "until [ -s " +
                       flag + " ]; do :; done; read pid < " + flag +
                       "; while kill -0 $pid 2> /dev/null; do :; done; blame 0")});
    EXPECT_EQ(result.exit_code, 82) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("ddp-launch: rank 0 left because of rank 1; stopping the others"),
                      HasSubstr("ddp-launch: rank 1 (local rank 1, pid "),
                      HasSubstr("made the others leave: it was stopped by SIGTERM\n")));
}

// Rank 2 ends well, and too early for rank 0. The others are told so; of a rank that lives they
// would say that it has ended.
TEST_F(LaunchBlame, TheAbortWordNamesWhoIsBlamedAndHasEnded) {
    const std::string ready = flags_.path() + "/ready";
    const std::string pid_of_2 = flags_.path() + "/rank_2";
    const LaunchResult result =
        launch({"--nproc-per-node=3", "bash", "-c",
                script("case $RANK in 2) echo $$ > " + pid_of_2 + "; exit 0;; 1) touch " + ready +
                       "; exec " + DDP_TEST_WORKER + " wait_for_abort;; esac; until [ -e " + ready +
                       " ] && [ -s " + pid_of_2 + " ]; do :; done; read pid < " + pid_of_2 +
                       "; while kill -0 $pid 2> /dev/null; do :; done; blame 2")});
    EXPECT_EQ(result.exit_code, 82) << result.err;
    EXPECT_EQ(result.out, "abort word 3\n");
    EXPECT_THAT(result.err, HasSubstr("rank 2 (local rank 2, pid "));
}

}  // namespace
}  // namespace ddp::launcher::testing
