// What the end of a round of several hosts means.
#include "launcher/agent/round_judge.hpp"

#include "contract/exit_code.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;

WorkerEnd end_of(int rank, ExitStatus status, int stopped_with = 0) {
    WorkerEnd end;
    end.rank = rank;
    end.status = status;
    end.stopped_with = stopped_with;
    return end;
}

RoundEnd round_of(StopReason reason, std::vector<WorkerEnd> ends) {
    const std::vector<HostSize> hosts{{.member = 1, .host = "h1"}, {.member = 2, .host = "h2"}};
    RoundEnd round;
    round.asked = {.round = 1, .reason = reason};
    round.round = {.round = 1, .table = make_rank_table(hosts)};
    round.ends = std::move(ends);
    return round;
}

RoundVerdict judge(const RoundEnd& round) {
    return RoundJudge({}, ExitCode::root_cause, {}).judge(round, "");
}

TEST(RoundJudge, BlamesTheFirstThatFailed) {
    const RoundVerdict verdict =
        judge(round_of(StopReason::failure, {end_of(1, ExitStatus{7}), end_of(0, ExitStatus{1})}));
    EXPECT_EQ(verdict.outcome.exit_code, 7);
    EXPECT_EQ(verdict.culprit, MemberId{2});
}

// As from an agent that killed its workers for a reason of its own.
TEST(RoundJudge, CallsNoRoundASuccessThatWasStoppedForAFailure) {
    const ExitStatus killed{.signal = SIGKILL};
    const RoundVerdict verdict = judge(
        round_of(StopReason::failure, {end_of(0, killed, SIGKILL), end_of(1, killed, SIGKILL)}));
    EXPECT_EQ(verdict.outcome.exit_code, contract::exit_error);
    EXPECT_THAT(verdict.outcome.text, HasSubstr("no rank is to blame"));
    EXPECT_EQ(verdict.line, verdict.outcome.text);
    EXPECT_FALSE(verdict.restart_in);
}

TEST(RoundJudge, BlamesTheRankThatHasHeldUpTheJob) {
    const ExitStatus asked{.signal = SIGTERM};
    const RoundEnd round =
        round_of(StopReason::hang, {end_of(0, ExitStatus{82}), end_of(1, asked, SIGTERM)});
    const RoundVerdict verdict = RoundJudge({.max_restarts = 1}, ExitCode::root_cause, {})
                                     .judge(round, "",
                                            HangFacts{.kind = "missing",
                                                      .ranks = {1},
                                                      .text = "rank 1 holds up rank 0",
                                                      .has_ended_job = true});
    EXPECT_EQ(verdict.outcome.exit_code, 82);
    EXPECT_EQ(verdict.culprit, MemberId{2});
    EXPECT_THAT(verdict.line, HasSubstr("held up the job"));
    EXPECT_THAT(verdict.outcome.text, HasSubstr("hang     rank 1 holds up rank 0"));
    EXPECT_TRUE(verdict.restart_in);
}

TEST(RoundJudge, NamesTheHostThatWasLost) {
    const RoundVerdict verdict =
        judge(round_of(StopReason::loss, {end_of(0, ExitStatus{.signal = SIGTERM}, SIGTERM)}));
    EXPECT_EQ(verdict.outcome.exit_code, contract::exit_host_lost);
    EXPECT_THAT(verdict.line, HasSubstr("host h2 was lost"));
}

}  // namespace
}  // namespace ddp::launcher
