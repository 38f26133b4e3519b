#include "launcher/verdict/hang_judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using contract::CallSignature;
using contract::Collective;
using contract::GroupEnd;
using contract::GroupRecord;
using contract::OperationRecord;
using contract::Phase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = Verdict::Kind;
using Duration = UsualTimes::Duration;

constexpr CallSignature sum{
    .kind = Collective::all_reduce, .dtype = DType::float32, .elements = 128};
constexpr CallSignature copy{
    .kind = Collective::broadcast, .dtype = DType::float32, .elements = 128};

// A job whose ranks have called `sum` at train.cpp:42 often, in no time, a second ago.
class HangJudge : public ::testing::Test {
protected:
    static constexpr std::uint32_t all = 7;  // the group of all ranks
    const Verdict::Time now{1h};

    void SetUp() override { start(4); }

    void start(int size) {
        ranks.clear();
        for (int rank = 0; rank < size; ++rank) {
            RankState state{.rank = rank, .started = now - 1min};
            state.record.pid = 1000 + rank;
            state.record.phase = Phase::running;
            state.record.joined = now - 50s;
            ranks.push_back(state);
            join(rank, all, size);
        }
    }
    void join(int rank, std::uint32_t id, int size, std::uint64_t done = 100) {
        at(rank).record.groups.push_back(
            GroupRecord{.id = id, .size = size, .started = done, .ended = done});
        note(rank, id, sum, now - 1s, now - 1s, 42);
    }
    RankState& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
    GroupRecord& group(int rank, std::uint32_t id) {
        return *std::ranges::find(at(rank).record.groups, id, &GroupRecord::id);
    }
    void note(int rank, std::uint32_t id, const CallSignature& call, Verdict::Time started,
              std::optional<Verdict::Time> ended, std::uint32_t line) {
        auto& operations = at(rank).record.operations;
        operations.push_back({.serial = operations.size() + 1,
                              .group = id,
                              .sequence = group(rank, id).started,
                              .call = call,
                              .file = "train.cpp",
                              .line = line,
                              .started = started,
                              .ended = ended});
    }
    // The rank has been in its next call of the group for so long.
    void wait(int rank, Duration since, const CallSignature& call = sum, std::uint32_t line = 42,
              std::uint32_t id = all) {
        ++group(rank, id).started;
        note(rank, id, call, now - since, std::nullopt, line);
    }
    void has_done(int rank, Duration ended, const CallSignature& call = sum,
                  std::uint32_t line = 42) {
        ++group(rank, all).started;
        ++group(rank, all).ended;
        note(rank, all, call, now - ended, now - ended, line);
    }
    void hold(int rank, char state, Duration since) {
        at(rank).process = {.pid = 1000 + rank, .state = state};
        at(rank).held_since = now - since;
    }
    void teach(Duration wait, Duration before = 10ms, int times = 20, std::uint32_t line = 42) {
        for (int i = 0; i < times; ++i) {
            const OperationRecord operation{.group = all,
                                            .sequence = static_cast<std::uint64_t>(i + 1),
                                            .call = sum,
                                            .file = "train.cpp",
                                            .line = line,
                                            .started = now - 1min,
                                            .ended = now - 1min + wait};
            usual.note(operation, operation.started - before);
            usual.settle();
        }
    }
    std::optional<Verdict> find() const { return judge(ranks, usual, now); }
    std::string text() const {
        const auto verdict = find();
        return verdict ? verdict->text : "";
    }

    std::vector<RankState> ranks;
    UsualTimes usual;
};

TEST_F(HangJudge, SaysNothingOfAJobThatRuns) {
    EXPECT_FALSE(find());
    wait(0, 10ms);
    EXPECT_FALSE(find());
    ranks.clear();
    EXPECT_FALSE(find());
}

TEST_F(HangJudge, NamesTheRankThatHasNotCome) {
    teach(10ms);
    for (const int rank : {0, 2, 3}) wait(rank, 900ms);
    at(1).process = {.pid = 1001, .state = 'S', .waits_in = "read of /data"};
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::missing);
    EXPECT_THAT(verdict->ranks, ElementsAre(1));
    EXPECT_THAT(verdict->waiting, ElementsAre(0, 2, 3));
    EXPECT_EQ(verdict->text,
              "rank 1 holds up ranks 0, 2, 3: it has not called all_reduce of 128 float32 (sum), "
              "operation 101 (train.cpp:42), waited in for 0.9 s\n"
              "  rank 1 (pid 1001) sleeps in read of /data; its last call, all_reduce of 128 "
              "float32 (sum), operation 100 (train.cpp:42), ended 1.0 s ago");
    at(1).cpu_share = 0.97;
    EXPECT_THAT(text(), HasSubstr("rank 1 (pid 1001) computes; its last call"));
}

TEST_F(HangJudge, WaitsForAsLongAsIsUsual) {
    for (const int rank : {0, 2, 3}) wait(rank, 900ms);
    EXPECT_FALSE(find()) << "nothing is usual yet";
    teach(1ms, 1ms, 9);
    EXPECT_FALSE(find()) << "nine times is not usual";
    teach(1ms);
    EXPECT_TRUE(find());
    teach(400ms);
    EXPECT_FALSE(find()) << "waits of 0.4 s are usual";
    usual = {};
    teach(1ms, 400ms);
    EXPECT_FALSE(find()) << "computing for 0.4 s is usual";
    usual = {};
    teach(1ms);
    teach(800ms, 1ms, 1);
    EXPECT_FALSE(find()) << "it has taken so long once";
    teach(1ms, 1ms, 5'000);
    EXPECT_TRUE(find()) << "but long ago";
}

TEST_F(HangJudge, LearnsFromTheRankThatWaitsLongest) {
    for (std::uint64_t call = 1; call <= 20; ++call) {
        for (const Duration wait : {1ms, 400ms, 2ms}) {
            OperationRecord operation = at(0).record.operations.back();
            operation.sequence = call;
            operation.started = now - 10s;
            operation.ended = now - 10s + wait;
            usual.note(operation, std::nullopt);
        }
        if (call < 10) {
            EXPECT_EQ(usual.patience(at(0).record.operations.back()), 5s) << call;
        }
        usual.settle();
    }
    EXPECT_EQ(usual.patience(at(0).record.operations.back()), 1200ms);
}

TEST_F(HangJudge, GivesUpOnACallThatItDoesNotKnow) {
    for (const int rank : {0, 2, 3}) wait(rank, 4s);
    group(1, all).ended = group(1, all).started = 100;
    EXPECT_FALSE(find());
    for (RankState& rank : ranks) rank.record.operations.clear();
    for (const int rank : {0, 2, 3}) {
        --group(rank, all).started;
        wait(rank, 6s);
    }
    EXPECT_EQ(find()->kind, Kind::missing);
}

TEST_F(HangJudge, ARankThatWasLateBeforeIsNotLateAgainAtOnce) {
    teach(1ms);
    for (const int rank : {0, 2, 3}) wait(rank, 900ms);
    at(1).record.operations.back().ended = now - 100ms;
    EXPECT_FALSE(find());
}

TEST_F(HangJudge, WaitsLongerForACheckpoint) {
    teach(10ms);
    for (const int rank : {0, 2, 3}) wait(rank, 20s);
    at(1).record.operations.back().ended = now - 21s;
    at(1).record.is_at_checkpoint = true;
    EXPECT_FALSE(find());
    at(1).record.operations.back().ended = now - 31s;
    EXPECT_THAT(text(), HasSubstr("rank 1 (pid 1001) is at a checkpoint; its last call"));
}

TEST_F(HangJudge, OfManyWhoAreLateNamesAll) {
    teach(1ms);
    wait(2, 900ms);
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::missing);
    EXPECT_THAT(verdict->ranks, ElementsAre(0, 1, 3));
}

TEST_F(HangJudge, KnowsNoGroupOfTooManyRanks) {
    teach(1ms);
    for (const int rank : {0, 2, 3}) wait(rank, 900ms);
    for (RankState& rank : ranks) rank.record.groups.front().size = 3;
    EXPECT_FALSE(find());
    for (RankState& rank : ranks) rank.record.groups.front().size = 4 + rank.rank;
    EXPECT_FALSE(find());
    has_done(1, 1ms, copy, 50);
    EXPECT_FALSE(judge_failed(ranks));
}

TEST_F(HangJudge, DoesNotBlameARankThatWaitsInWhatIsNotRecorded) {
    teach(1ms);
    for (const int rank : {0, 2, 3}) wait(rank, 900ms);
    at(1).record.waits_unrecorded = true;
    EXPECT_FALSE(find());
}

TEST_F(HangJudge, NamesWhoWaitsForThoseWhoNeverCome) {
    wait(2, 600ms);
    for (const int rank : {0, 1, 3}) group(rank, all).end = GroupEnd::left;
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::ahead);
    EXPECT_THAT(verdict->ranks, ElementsAre(2));
    EXPECT_THAT(verdict->text,
                HasSubstr("; ranks 0, 1, 3 never will: they have left the group, or failed"));
    at(0).has_ended = true;
    EXPECT_THAT(text(), HasSubstr("rank 0 (pid 1000) has ended"));
}

TEST_F(HangJudge, NamesTheRankThatIsStopped) {
    for (const int rank : {0, 2, 3}) wait(rank, 600ms);
    hold(1, 'T', 600ms);
    const auto verdict = find();
    ASSERT_TRUE(verdict) << "whatever is usual";
    EXPECT_EQ(verdict->kind, Kind::held);
    EXPECT_THAT(verdict->ranks, ElementsAre(1));
    EXPECT_THAT(
        verdict->text,
        StartsWith("rank 1 holds up ranks 0, 2, 3, in all_reduce of 128 float32 (sum), operation "
                   "101 (train.cpp:42) since 0.6 s\n  rank 1 (pid 1001) is stopped (SIGSTOP); "
                   "its last call"));
    at(1).held_since = now - 300ms;
    EXPECT_FALSE(find()) << "for a moment";
    teach(1ms);
    EXPECT_EQ(find()->kind, Kind::held) << "but they wait for too long";
    usual = {};
    at(1).process = {.pid = 1001, .state = 't', .tracer = 77};
    at(1).held_since = now - 2s;
    EXPECT_THAT(text(), HasSubstr("rank 1 (pid 1001) is held by a debugger (pid 77)"));
    EXPECT_TRUE(find()->in_debugger);
    at(1).process = {.pid = 1001, .state = 'S', .is_frozen = true};
    EXPECT_THAT(text(), HasSubstr("rank 1 (pid 1001) is frozen, with its cgroup"));
}

TEST_F(HangJudge, NamesTheRankThatIsStoppedWithinTheCall) {
    for (int rank = 0; rank < 4; ++rank) wait(rank, 600ms);
    hold(3, 'T', 550ms);
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::held);
    EXPECT_THAT(verdict->ranks, ElementsAre(3));
    EXPECT_THAT(verdict->waiting, ElementsAre(0, 1, 2));
}

TEST_F(HangJudge, NamesARankThatIsStoppedThoughNobodyWaits) {
    hold(1, 'T', 600ms);
    EXPECT_THAT(text(), StartsWith("rank 1 does not run since 0.6 s\n  rank 1 (pid 1001) is stop"));
    for (RankState& rank : ranks) rank.record = {};
    EXPECT_THAT(text(), HasSubstr("rank 1 (pid 1001) is stopped (SIGSTOP)")) << "of any program";
    EXPECT_THAT(text(), Not(HasSubstr("called nothing")));
    at(1).process.tracer = 77;
    EXPECT_FALSE(find()) << "who debugs it knows";
}

TEST_F(HangJudge, NamesTheFewWhoCallSomethingElse) {
    for (const int rank : {0, 2, 3}) wait(rank, 400ms);
    wait(1, 400ms, copy, 50);
    const auto verdict = find();
    ASSERT_TRUE(verdict) << "whatever is usual";
    EXPECT_EQ(verdict->kind, Kind::mismatch);
    EXPECT_THAT(verdict->ranks, ElementsAre(1));
    EXPECT_EQ(verdict->text,
              "the ranks have called different things, and wait for each other since 0.4 s:\n"
              "  rank 1: broadcast of 128 float32 from rank 0, operation 101 (train.cpp:50)\n"
              "  ranks 0, 2, 3: all_reduce of 128 float32 (sum), operation 101 (train.cpp:42)");
}

TEST_F(HangJudge, KnowsEachWayInWhichCallsDiffer) {
    std::vector<CallSignature> others(6, sum);
    others[0].kind = Collective::broadcast;
    others[1].dtype = DType::float64;
    others[2].op = ReduceOp::max;
    others[3].root = 1;
    others[4].elements = 127;
    others[5].source = contract::encode({.reducer = 1, .backward = 1, .bucket = 1});
    for (const CallSignature& other : others) {
        start(2);
        wait(0, 400ms);
        wait(1, 350ms, other);
        ASSERT_TRUE(find()) << describe(other);
        EXPECT_EQ(find()->kind, Kind::mismatch);
        EXPECT_THAT(find()->ranks, ElementsAre(0, 1)) << "of equals all";
    }
    start(2);
    wait(0, 400ms);
    wait(1, 200ms, others[0]);
    EXPECT_FALSE(find()) << "the backend may say so itself";
}

TEST_F(HangJudge, FindsTheMismatchThatHasEndedAJob) {
    EXPECT_FALSE(judge_failed(ranks));
    for (const int rank : {0, 2, 3}) has_done(rank, 1ms);
    EXPECT_FALSE(judge_failed(ranks));
    has_done(1, 1ms, copy, 50);
    const auto verdict = judge_failed(ranks);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::mismatch);
    EXPECT_THAT(verdict->ranks, ElementsAre(1));
    EXPECT_THAT(verdict->text, StartsWith("the ranks have called different things:\n  rank 1: b"));
}

// A broadcast's root sends, and goes on.
TEST_F(HangJudge, LooksAtWhatARankHasDoneAlready) {
    for (const int rank : {0, 2, 3}) wait(rank, 400ms);
    has_done(1, 350ms, copy, 50);
    wait(1, 350ms, sum, 51);
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::mismatch);
    EXPECT_THAT(verdict->ranks, ElementsAre(1));
}

TEST_F(HangJudge, DoesNotBlameARankThatWaitsElsewhere) {
    constexpr std::uint32_t pair = 9;  // of ranks 1 and 2
    join(1, pair, 2);
    join(2, pair, 2);
    teach(1ms);
    for (const int rank : {0, 3}) wait(rank, 900ms);
    wait(1, 950ms, sum, 42, pair);
    // Of the pair nothing is known yet, of the group of all it is: rank 2 has not come to either.
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_THAT(verdict->ranks, ElementsAre(2));
    EXPECT_THAT(verdict->waiting, ElementsAre(0, 1, 3));
}

TEST_F(HangJudge, SaysThatRanksWaitForEachOther) {
    start(2);
    constexpr std::uint32_t other = 9;
    join(0, other, 2);
    join(1, other, 2);
    wait(0, 6s, sum, 42, all);
    wait(1, 6s, copy, 50, other);
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::crossed);
    EXPECT_THAT(verdict->ranks, ElementsAre(0, 1));
    EXPECT_EQ(verdict->text,
              "ranks wait for each other, since 6.0 s\n"
              "  rank 0 (pid 1000) is in all_reduce of 128 float32 (sum), operation 101 "
              "(train.cpp:42) of a group of 2\n"
              "  rank 1 (pid 1001) is in broadcast of 128 float32 from rank 0, operation 101 "
              "(train.cpp:50) of a group of 2");
}

contract::TransferRecord transfer(bool sends, int peer, Verdict::Time since) {
    return {.sends = sends,
            .peer = peer,
            .bytes = 1024,
            .file = "train.cpp",
            .line = 60,
            .since = since};
}

TEST_F(HangJudge, NamesTheOtherSideOfATransfer) {
    group(2, all).transfer = transfer(false, 1, now - 4s);
    at(1).record.operations.back().ended = now - 6s;
    EXPECT_FALSE(find());
    group(2, all).transfer->since = now - 6s;
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::missing);
    EXPECT_THAT(verdict->ranks, ElementsAre(1));
    EXPECT_THAT(verdict->text,
                StartsWith("rank 1 holds up rank 2, in recv of 1024 bytes from rank 1 "
                           "(train.cpp:60) since 6.0 s\n  rank 1"));
    usual.note(*group(2, all).transfer, 4s);
    EXPECT_FALSE(find()) << "twice as long is usual";
    usual = {};
    at(1).record.operations.back().ended = now - 1s;
    EXPECT_FALSE(find()) << "it was held up itself";
    hold(1, 'T', 1s);
    EXPECT_EQ(find()->kind, Kind::held);
    at(1).has_ended = true;
    EXPECT_FALSE(find());
}

TEST_F(HangJudge, DoesNotBlameARankThatWaitsInATransfer) {
    teach(1ms);
    for (const int rank : {0, 3}) wait(rank, 900ms);
    group(2, all).transfer = transfer(false, 1, now - 900ms);
    at(1).record.operations.back().ended = now - 6s;
    EXPECT_THAT(find()->ranks, ElementsAre(1)) << "it has not come to the all_reduce either";
    wait(1, 900ms);
    EXPECT_FALSE(find()) << "rank 2 waits for rank 1, which waits for rank 2: not for long";
    group(2, all).transfer->since = now - 6s;
    for (const int rank : {0, 1, 3}) at(rank).record.operations.back().started = now - 6s;
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::crossed);
    EXPECT_THAT(
        verdict->text,
        HasSubstr("\n  rank 2 (pid 1002) is in recv of 1024 bytes from rank 1 (train.cpp:60"));
}

TEST_F(HangJudge, SaysNothingOfATransferThatBothSidesAreIn) {
    start(2);
    group(0, all).transfer = transfer(true, 1, now - 1min);
    group(1, all).transfer = transfer(false, 0, now - 1min);
    EXPECT_FALSE(find()) << "it may be a slow network";
    group(1, all).transfer = transfer(true, 0, now - 1min);
    EXPECT_EQ(find()->kind, Kind::crossed) << "both send";
    group(1, all).transfer = transfer(true, 5, now - 1min);
    EXPECT_FALSE(find()) << "rank 5 is not known";
}

TEST_F(HangJudge, SaysThatNobodyIsMissing) {
    teach(1ms);
    for (int rank = 0; rank < 4; ++rank) wait(rank, 9s);
    EXPECT_FALSE(find());
    for (RankState& rank : ranks) rank.record.operations.back().started = now - 11s;
    EXPECT_EQ(find()->kind, Kind::stuck);
    EXPECT_THAT(text(), HasSubstr("(train.cpp:42), since 11 s, and nobody is missing"));
    for (RankState& rank : ranks) rank.record.operations.back().call.elements = 1 << 30;
    EXPECT_FALSE(find()) << "16 GiB take their time";
}

TEST_F(HangJudge, SaysNothingOfRanksThatItDoesNotKnow) {
    teach(1ms);
    ranks.pop_back();  // on another host
    for (int rank = 0; rank < 3; ++rank) wait(rank, 1min);
    EXPECT_FALSE(find()) << "rank 3 may be missing";
    --group(1, all).started;
    at(1).record.operations.pop_back();
    EXPECT_THAT(find()->ranks, ElementsAre(1)) << "but rank 1 is, for certain";
}

TEST_F(HangJudge, SaysNothingOfRanksThatHaveFailed) {
    teach(1ms);
    for (const int rank : {0, 2, 3}) {
        wait(rank, 900ms);
        group(rank, all).end = GroupEnd::failed;
    }
    EXPECT_FALSE(find());
}

TEST_F(HangJudge, NamesWhoHasNotBegun) {
    for (RankState& rank : ranks) {
        rank.record = {};
        rank.record.pid = 1000 + rank.rank;
        rank.record.phase = Phase::joining;
        rank.record.joined = now - 11s;
        rank.started = now - 12s;
    }
    EXPECT_FALSE(find()) << "all have";
    at(2).record = {};
    const auto verdict = find();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, Kind::missing);
    EXPECT_THAT(verdict->ranks, ElementsAre(2));
    EXPECT_THAT(verdict->text, StartsWith("rank 2 holds up ranks 0, 1, 3: it has not called "
                                          "init_process_group, waited in for 11 s\n  rank 2"));
    for (RankState& rank : ranks) rank.started = now - 1min;
    EXPECT_FALSE(find()) << "the others took long, too";
    hold(2, 'T', 1s);
    EXPECT_EQ(find()->kind, Kind::held);
    at(2).has_ended = true;
    EXPECT_FALSE(find());
}

// On a GPU many calls are under way: the ranks wait in the first of them.
TEST_F(HangJudge, NamesTheFirstCallThatAGpuWaitsIn) {
    teach(1ms);
    for (RankState& rank : ranks) {
        group(rank.rank, all).on_gpu = true;
        for (int i = 0; i < 5 && rank.rank != 3; ++i) wait(rank.rank, 2s);
    }
    wait(3, 2s);
    EXPECT_FALSE(find()) << "all have launched operation 101, which may not have begun";
    for (RankState& rank : ranks) {
        group(rank.rank, all).ended = 101;
        rank.record.operations[1].ended = now - 2s;
    }
    EXPECT_THAT(text(), AllOf(StartsWith("rank 3 holds up ranks 0-2: it has not called"),
                              HasSubstr("operation 102 (train.cpp:42)")));
}

// A launch is no wait: kernels may come before, and its program alone may wait for those of a rank.
TEST_F(HangJudge, IsPatientWithGpusUntilACallIsKnown) {
    for (const int rank : {0, 1, 2}) wait(rank, 20s);
    EXPECT_EQ(find()->kind, Kind::missing);
    for (RankState& rank : ranks) group(rank.rank, all).on_gpu = true;
    EXPECT_FALSE(find());
    for (const int rank : {0, 1, 2}) at(rank).record.operations.back().started = now - 61s;
    EXPECT_EQ(find()->kind, Kind::missing);
    for (const int rank : {0, 1, 2}) at(rank).record.operations.back().started = now - 2s;
    teach(1ms);
    EXPECT_EQ(find()->kind, Kind::missing);
}

TEST_F(HangJudge, IsPatientWithWhatAGpuHasBeforeACollective) {
    teach(1ms);
    for (RankState& rank : ranks) wait(rank.rank, 20s);
    EXPECT_EQ(find()->kind, Kind::stuck);
    for (RankState& rank : ranks) group(rank.rank, all).on_gpu = true;
    EXPECT_FALSE(find());
    for (RankState& rank : ranks) rank.record.operations.back().started = now - 2min;
    EXPECT_THAT(text(), HasSubstr("a kernel that was launched before it may not end"));
}

// Each rank at a random place of the same program, none of them late: never a word.
TEST_F(HangJudge, IsSilentAboutTheOrderInWhichRanksCome) {
    std::mt19937 random(3);
    teach(1ms);
    for (int i = 0; i < 20'000; ++i) {
        start(2 + static_cast<int>(random() % 7));
        for (RankState& rank : ranks) {
            const int place = static_cast<int>(random() % 3);
            if (place == 1) wait(rank.rank, std::chrono::milliseconds(random() % 500));
            if (place == 2) has_done(rank.rank, 100ms);
        }
        ASSERT_FALSE(find()) << i << ": " << text();
    }
}

// What stands in the pages may be anything.
TEST_F(HangJudge, JudgesAnyRecord) {
    std::mt19937_64 random(5);
    const auto any_time = [&] { return Verdict::Time(Duration(random() >> (random() % 64) >> 1)); };
    for (int i = 0; i < 20'000; ++i) {
        start(3);
        for (RankState& rank : ranks) {
            rank.record.phase = static_cast<Phase>(random() % 5);
            rank.record.pid = static_cast<pid_t>(random() % 2);
            rank.record.joined = std::min(any_time(), now);
            rank.has_ended = random() % 4 == 0;
            for (int n = 0; n < 4; ++n) {
                const std::uint64_t ended = random() % 3;
                const std::uint64_t started = ended + random() % 3;
                rank.record.groups.push_back({.id = static_cast<std::uint32_t>(random() % 3),
                                              .size = static_cast<int>(random() % 5) + 1,
                                              .started = started,
                                              .ended = ended,
                                              .end = static_cast<GroupEnd>(random() % 3)});
                OperationRecord operation{.serial = random(),
                                          .group = static_cast<std::uint32_t>(random() % 3),
                                          .sequence = random() % 3,
                                          .call = sum,
                                          .started = std::min(any_time(), now)};
                operation.call.elements = random();
                if (random() % 2 == 0) operation.ended = std::min(any_time(), now);
                rank.record.operations.push_back(operation);
                usual.note(operation, std::min(any_time(), now));
            }
        }
        usual.settle();
        if (const auto verdict = find()) {
            EXPECT_FALSE(verdict->ranks.empty());
            EXPECT_TRUE(std::ranges::is_sorted(verdict->ranks));
            EXPECT_LT(verdict->text.size(), 4000U);
        }
    }
}

}  // namespace
}  // namespace ddp::launcher
