// The schedule of a stop, with the time handed in.
#include "launcher/agent/attempt/stop_sequence.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;
using Time = StopSequence::Time;

const Time start{std::chrono::hours{1}};
constexpr milliseconds grace{2000};
constexpr milliseconds tick{1};

TEST(StopSequence, NothingIsDueBeforeItBegins) {
    StopSequence stop;
    EXPECT_FALSE(stop.active());
    EXPECT_EQ(stop.due(start), std::nullopt);
    EXPECT_EQ(stop.next(), std::nullopt);
    EXPECT_FALSE(stop.kill_timed_out(start));
}

TEST(StopSequence, AFailureLeavesTimeToLeaveThenTermThenKill) {
    StopSequence stop;
    stop.on_failure(start, grace);
    EXPECT_TRUE(stop.active());
    const Time term = start + StopSequence::time_to_leave;
    EXPECT_EQ(stop.next(), term);
    EXPECT_EQ(stop.due(term - tick), std::nullopt);
    EXPECT_EQ(stop.due(term), SIGTERM);
    EXPECT_EQ(stop.due(term), std::nullopt);
    EXPECT_EQ(stop.next(), term + grace);
    EXPECT_EQ(stop.due(term + grace - tick), std::nullopt);
    EXPECT_EQ(stop.due(term + grace), SIGKILL);
    const Time end = term + grace + StopSequence::time_to_die;
    EXPECT_EQ(stop.next(), end);
    EXPECT_FALSE(stop.kill_timed_out(end - tick));
    EXPECT_TRUE(stop.kill_timed_out(end));
}

TEST(StopSequence, ASignalIsSentAtOnceAndKillAfterTheGrace) {
    StopSequence stop;
    stop.on_signal(SIGINT, start, grace);
    EXPECT_EQ(stop.due(start), SIGINT);
    EXPECT_EQ(stop.due(start), std::nullopt);
    EXPECT_EQ(stop.due(start + grace), SIGKILL);
}

TEST(StopSequence, SigpipeIsFollowedByTermForThoseWhoIgnoreIt) {
    StopSequence stop;
    stop.on_signal(SIGPIPE, start, grace);
    EXPECT_EQ(stop.due(start), SIGPIPE);
    EXPECT_EQ(stop.due(start), std::nullopt);
    const Time term = start + StopSequence::time_to_leave;
    EXPECT_EQ(stop.next(), term);
    EXPECT_EQ(stop.due(term), SIGTERM);
    EXPECT_EQ(stop.due(term), std::nullopt);
    EXPECT_EQ(stop.due(start + grace), SIGKILL);
}

TEST(StopSequence, ASecondSignalIsSentButDoesNotPutTheKillOff) {
    StopSequence stop;
    stop.on_signal(SIGTERM, start, grace);
    EXPECT_EQ(stop.due(start), SIGTERM);
    stop.on_signal(SIGINT, start + grace / 2, grace);
    EXPECT_EQ(stop.due(start + grace / 2), SIGINT);
    EXPECT_EQ(stop.next(), start + grace);
}

TEST(StopSequence, ASignalMakesAFailureStopFaster) {
    StopSequence stop;
    stop.on_failure(start, grace);
    stop.on_signal(SIGINT, start + tick, grace);
    EXPECT_EQ(stop.due(start + tick), SIGINT);
    EXPECT_EQ(stop.next(), start + tick + grace);
}

TEST(StopSequence, ALaterFailureChangesNothing) {
    StopSequence stop;
    stop.on_signal(SIGINT, start, grace);
    stop.on_failure(start + tick, grace * 10);
    EXPECT_EQ(stop.due(start + tick), SIGINT);
    EXPECT_EQ(stop.next(), start + grace);
}

TEST(StopSequence, KillNowSkipsTheGrace) {
    StopSequence stop;
    stop.on_signal(SIGINT, start, grace);
    EXPECT_EQ(stop.due(start), SIGINT);
    stop.kill_now(start + tick);
    EXPECT_EQ(stop.due(start + tick), SIGKILL);
    EXPECT_EQ(stop.due(start + grace), std::nullopt);
    stop.on_signal(SIGTERM, start + grace, grace);  // too late to matter
    EXPECT_EQ(stop.due(start + grace), std::nullopt);
}

TEST(StopSequence, ALikelyStopLeavesItsTimeWhateverTheGrace) {
    StopSequence stop;
    stop.on_likely_stop(start, milliseconds{0});
    EXPECT_TRUE(stop.active());
    const Time term = start + StopSequence::time_to_leave;
    EXPECT_EQ(stop.due(term - tick), std::nullopt);
    EXPECT_EQ(stop.due(term), SIGTERM);
    EXPECT_EQ(stop.due(term), SIGKILL);
}

TEST(StopSequence, WhoIsLeftSharesTheGrace) {
    StopSequence stop;
    EXPECT_EQ(stop.kill_time(start, grace), start + grace) << "nobody was stopped";
    stop.on_signal(SIGTERM, start, grace);
    EXPECT_EQ(stop.due(start), SIGTERM);
    EXPECT_EQ(stop.kill_time(start + grace / 2, grace), start + grace);
    stop.kill_now(start + grace / 2);
    EXPECT_EQ(stop.due(start + grace / 2), SIGKILL);
    EXPECT_EQ(stop.kill_time(start + grace / 2, grace), start + grace / 2);
}

TEST(StopSequence, AGraceOfNothingKillsRightAfterTheSignal) {
    StopSequence stop;
    stop.on_signal(SIGTERM, start, milliseconds{0});
    EXPECT_EQ(stop.due(start), SIGTERM);
    EXPECT_EQ(stop.due(start), SIGKILL);
}

}  // namespace
}  // namespace ddp::launcher
