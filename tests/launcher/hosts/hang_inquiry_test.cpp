// Who holds up a job of several hosts, from what their members say: a world of two hosts with two
// ranks each, without a network.
#include "launcher/hosts/inquiries/hang_inquiry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using contract::CallSignature;
using contract::Collective;
using contract::GroupRecord;
using contract::OperationRecord;
using contract::Phase;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Time = HangInquiry::Time;

constexpr CallSignature sum{
    .kind = Collective::all_reduce, .dtype = DType::float32, .elements = 128};
constexpr MemberId first_host = 4;
constexpr MemberId second_host = 9;

RoundMessage a_round(int number) {
    const std::vector<HostSize> hosts{{.member = first_host, .host = "h1", .slots = 2},
                                      {.member = second_host, .host = "h2", .slots = 2}};
    return {.round = number, .restarts = 1, .table = make_rank_table(hosts)};
}

class HangInquiryTest : public ::testing::Test {
protected:
    HangInquiryTest() { inquiry.begin_round(a_round(2)); }

    OperationRecord call(std::uint64_t sequence, Time started, std::optional<Time> ended) const {
        return {.serial = sequence,
                .group = 7,
                .sequence = sequence,
                .call = sum,
                .file = "train.cpp",
                .line = 42,
                .started = started,
                .ended = ended};
    }
    // A rank that has done 100 calls, the last a second ago, and waits in the next for so long;
    // zero: it does not.
    RankState rank(int number, std::chrono::milliseconds waits) const {
        RankState state{.rank = number, .started = now - 1min};
        state.record.pid = 1000 + number;
        state.record.phase = Phase::running;
        state.record.joined = now - 50s;
        state.record.operations = {call(100, now - 1010ms, now - 1000ms)};
        const bool is_in = waits > 0ms;
        if (is_in) state.record.operations.push_back(call(101, now - waits, std::nullopt));
        state.record.groups = {
            GroupRecord{.id = 7, .size = 4, .started = is_in ? 101U : 100U, .ended = 100}};
        state.process = {.pid = 1000 + number, .state = 'S'};
        return state;
    }
    // Of the host whose ranks begin there.
    SightingMessage sight(int first_rank, std::chrono::milliseconds first,
                          std::chrono::milliseconds second, std::uint64_t question = 0,
                          std::chrono::milliseconds patience = 500ms) const {
        SightingMessage message{.round = 2, .question = question};
        message.seen.ranks = {rank(first_rank, first), rank(first_rank + 1, second)};
        message.seen.is_alarm = first >= 500ms || second >= 500ms;
        message.seen.usual = {{key_of(call(1, now, now)), patience, 500ms}};
        return message;
    }
    void hear_first(std::chrono::milliseconds first, std::chrono::milliseconds second,
                    std::uint64_t question = 0) {
        inquiry.note(first_host, sight(0, first, second, question));
    }
    void hear_second(std::chrono::milliseconds first, std::chrono::milliseconds second,
                     std::uint64_t question = 0, std::chrono::milliseconds patience = 500ms) {
        inquiry.note(second_host, sight(2, first, second, question, patience));
    }
    std::uint64_t ask() {
        const auto look = inquiry.take_question(now);
        EXPECT_TRUE(look);
        return look ? look->question : 0;
    }
    // The first host raises an alarm, and both answer the question that follows.
    void hear_that_rank_3_is_missing() {
        hear_first(600ms, 600ms);
        const std::uint64_t question = ask();
        hear_first(610ms, 610ms, question);
        hear_second(610ms, 0ms, question);
    }
    void tell(MemberId by, std::vector<int> ranks, std::uint64_t question, int round = 2) {
        StacksMessage message{.round = round, .question = question};
        for (const int rank : ranks) message.stacks.push_back({.rank = rank, .pid = 1000 + rank});
        inquiry.note(by, std::move(message));
    }
    void let_pass(std::chrono::milliseconds time) { now += time; }
    void start_over(OnHang on_hang) {
        inquiry = HangInquiry(on_hang, 0ms);
        inquiry.begin_round(a_round(2));
    }

    Time now{1h};
    Time stopped{};
    HangInquiry inquiry{OnHang::say, 0ms};
};

TEST_F(HangInquiryTest, AsksNobodyUntilRanksWaitForLong) {
    EXPECT_FALSE(inquiry.take_question(now));
    hear_first(300ms, 0ms);
    EXPECT_FALSE(inquiry.take_question(now));
    hear_first(600ms, 0ms);
    const auto look = inquiry.take_question(now);
    ASSERT_TRUE(look);
    EXPECT_EQ(look->round, 2);
    EXPECT_THAT(look->calls, ElementsAre(key_of(call(1, now, now))));
    EXPECT_FALSE(inquiry.take_question(now + 10s)) << "the answers are not here";
}

TEST_F(HangInquiryTest, BlamesTheRankOfAHostThatHadNothingToSay) {
    hear_first(600ms, 600ms);
    const std::uint64_t question = ask();
    hear_first(610ms, 610ms, question);
    EXPECT_THAT(inquiry.take_news(now).texts, IsEmpty()) << "h2 has not answered";
    hear_second(610ms, 0ms, question);
    const HangInquiry::News news = inquiry.take_news(now);
    ASSERT_THAT(news.texts, SizeIs(1));
    EXPECT_THAT(news.texts[0],
                AllOf(HasSubstr("rank 3 holds up ranks 0-2: it has not called all_reduce of 128 "
                                "float32 (sum), operation 101 (train.cpp:42)"),
                      HasSubstr("\n  rank 3 (h2, pid 1003)")));
    EXPECT_THAT(news.concerned, ElementsAre(second_host));
    EXPECT_FALSE(news.stops_because_of);
    const auto facts = inquiry.facts(false);
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->kind, "missing");
    EXPECT_THAT(facts->ranks, ElementsAre(3));
}

TEST_F(HangInquiryTest, AsksWhereTheRanksOfAVerdictAreUntilTheirHostsTell) {
    const auto ask_again = [&] {
        let_pass(300ms);
        const auto look = inquiry.take_question(now);
        EXPECT_TRUE(look);
        hear_first(910ms, 910ms, look->question);
        hear_second(910ms, 0ms, look->question);
        inquiry.take_news(now);
        return *look;
    };
    hear_that_rank_3_is_missing();
    EXPECT_THAT(inquiry.take_news(now).texts, SizeIs(1));
    const LookMessage look = ask_again();
    EXPECT_THAT(look.stacks_of, ElementsAre(3, 0));
    tell(second_host, {3, 0, 2}, look.question);  // the first alone is its own, and was asked for
    tell(first_host, {0}, look.question - 1);     // before the verdict
    tell(first_host, {0}, look.question + 1);
    tell(first_host, {0}, look.question, 1);
    EXPECT_THAT(ask_again().stacks_of, ElementsAre(0));
    tell(first_host, {0}, look.question);
    EXPECT_THAT(ask_again().stacks_of, IsEmpty());
    const auto facts = inquiry.facts(false);
    ASSERT_TRUE(facts);
    ASSERT_THAT(facts->stacks, SizeIs(2));
    EXPECT_EQ(facts->stacks[0].rank, 0);
    EXPECT_EQ(facts->stacks[1].pid, 1003);
    inquiry.begin_round(a_round(3));
    EXPECT_FALSE(inquiry.facts(false));
}

TEST_F(HangInquiryTest, DoesNotAskForEver) {
    hear_that_rank_3_is_missing();
    inquiry.take_news(now);
    int asked = 0;
    for (int i = 0; i < 100; ++i) {
        let_pass(300ms);
        const auto look = inquiry.take_question(now);
        ASSERT_TRUE(look);
        asked += look->stacks_of.empty() ? 0 : 1;
        hear_first(910ms, 910ms, look->question);
        hear_second(910ms, 0ms, look->question);
        inquiry.take_news(now);
    }
    EXPECT_EQ(asked, 24);
}

// Who has not answered may be on its way.
TEST_F(HangInquiryTest, SaysNothingOfRanksWhoseHostDoesNotAnswer) {
    hear_first(600ms, 600ms);
    hear_first(610ms, 610ms, ask());
    let_pass(390ms);
    EXPECT_FALSE(inquiry.take_question(now));
    let_pass(10ms);
    EXPECT_THAT(inquiry.take_news(now).texts, IsEmpty());
    EXPECT_TRUE(inquiry.take_question(now)) << "it asks again";
}

TEST_F(HangInquiryTest, HasThePatienceOfTheHostThatKnowsTheCallBest) {
    hear_first(600ms, 600ms);
    const std::uint64_t question = ask();
    hear_first(610ms, 610ms, question);
    hear_second(0ms, 0ms, question, 2s);
    EXPECT_THAT(inquiry.take_news(now).texts, IsEmpty());
    let_pass(2s);
    const std::uint64_t next = ask();
    hear_first(2610ms, 2610ms, next);
    hear_second(0ms, 0ms, next, 2s);
    EXPECT_THAT(inquiry.take_news(now).texts, SizeIs(1));
}

TEST_F(HangInquiryTest, AsksUntilNobodyWaitsAndSaysThatTheJobGoesOn) {
    hear_that_rank_3_is_missing();
    EXPECT_THAT(inquiry.take_news(now).texts, SizeIs(1));
    EXPECT_FALSE(inquiry.take_question(now)) << "not at once";
    let_pass(300ms);
    std::uint64_t question = ask();
    hear_first(910ms, 910ms, question);
    hear_second(910ms, 0ms, question);
    EXPECT_THAT(inquiry.take_news(now).texts, IsEmpty()) << "it has been said";
    let_pass(300ms);
    question = ask();
    hear_first(0ms, 0ms, question);
    hear_second(0ms, 0ms, question);
    const HangInquiry::News news = inquiry.take_news(now);
    EXPECT_THAT(news.texts, ElementsAre(HasSubstr("the job goes on: ranks 0-2 had waited for ")));
    let_pass(10s);
    EXPECT_FALSE(inquiry.take_question(now)) << "all is well";
    EXPECT_FALSE(inquiry.facts(true)) << "nor do the records differ";
}

// As where its host was slow to look, or to answer.
TEST_F(HangInquiryTest, AsksUntilAStoppedRankIsSeenToRunAgainThoughTheJobGoesOn) {
    const auto hear = [&](std::chrono::milliseconds waits, bool is_stopped) {
        const std::uint64_t question = ask();
        hear_first(waits, waits, question);
        SightingMessage message = sight(2, waits, 0ms, question);
        if (is_stopped) message.seen.ranks[1].process.state = 'T';
        if (is_stopped) message.seen.ranks[1].held_since = stopped;
        inquiry.note(second_host, message);
        return inquiry.take_news(now).texts;
    };
    stopped = now - 250ms;  // as it was seen
    hear_first(600ms, 600ms);
    EXPECT_THAT(hear(610ms, true), ElementsAre(HasSubstr("rank 3 (h2, pid 1003) is stopped")));
    let_pass(300ms);
    stopped = now - 100ms;  // by who reads its stacks
    EXPECT_THAT(hear(0ms, true),
                ElementsAre(HasSubstr("the job goes on: ranks 0-2 had waited for ")));
    let_pass(300ms);
    EXPECT_THAT(hear(0ms, false),
                ElementsAre("rank 3 (h2, pid 1003) runs again: it was stopped for 0.9 s"));
    let_pass(10s);
    EXPECT_FALSE(inquiry.take_question(now)) << "all is well";
}

// Of an agent that was stopped, or starved: what it heard before is no news.
TEST_F(HangInquiryTest, AsksAnewWhereItsOwnHostStoodStill) {
    start_over(OnHang::stop);
    hear_that_rank_3_is_missing();
    let_pass(5s);
    const HangInquiry::News news = inquiry.take_news(now);
    EXPECT_THAT(news.texts, IsEmpty());
    EXPECT_FALSE(news.stops_because_of);
    EXPECT_TRUE(inquiry.take_question(now));
}

// Whose agent was stopped, or starved: since then alone its ranks are known to wait, or to compute.
TEST_F(HangInquiryTest, LetsAVerdictStandWhereAHostOfItStoodStill) {
    inquiry = HangInquiry(OnHang::stop, 1s);
    inquiry.begin_round(a_round(2));
    hear_that_rank_3_is_missing();
    EXPECT_THAT(inquiry.take_news(now).texts, SizeIs(1));
    const auto look = [&](std::chrono::milliseconds since) {
        const std::uint64_t question = ask();
        hear_first(2s, 2s, question);
        SightingMessage message = sight(2, since, 0ms, question);
        message.seen.ranks[1].record.operations = {call(100, now - 2s, now - since)};
        inquiry.note(second_host, message);
        return inquiry.take_news(now);
    };
    let_pass(1400ms);
    HangInquiry::News news = look(20ms);
    EXPECT_THAT(news.texts, IsEmpty());
    EXPECT_FALSE(news.stops_because_of) << "it has to stand anew";
    EXPECT_EQ(inquiry.facts(false)->kind, "missing");
    let_pass(600ms);
    EXPECT_THAT(look(620ms).texts, IsEmpty()) << "it has been said";
    let_pass(3s);
    news = look(3620ms);
    EXPECT_EQ(news.stops_because_of, 3);
}

// One of a transfer names no call: the next that waits for the same rank is another.
TEST_F(HangInquiryTest, LetsNoVerdictOnATransferStandForTheNextOne) {
    const auto hear = [&](std::chrono::milliseconds waits) {
        const std::uint64_t question = ask();
        SightingMessage message = sight(0, 0ms, 0ms, question);
        message.seen.is_alarm = true;
        message.seen.ranks[0].record.groups[0].transfer =
            contract::TransferRecord{.peer = 3, .bytes = 64, .line = 7, .since = now - waits};
        inquiry.note(first_host, message);
        message = sight(2, 0ms, 0ms, question);
        message.seen.ranks[1].record.operations = {call(100, now - 30s, now - 20s)};
        inquiry.note(second_host, message);
        return inquiry.take_news(now).texts;
    };
    hear_first(600ms, 0ms);
    EXPECT_THAT(hear(10s), ElementsAre(HasSubstr("rank 3 holds up rank 0, in recv of 64 bytes")));
    let_pass(300ms);
    EXPECT_THAT(hear(10300ms), IsEmpty()) << "it has been said";
    let_pass(300ms);
    EXPECT_THAT(hear(50ms), ElementsAre(HasSubstr("the job goes on: rank 0 had waited for ")));
    EXPECT_FALSE(inquiry.facts(false));
}

TEST_F(HangInquiryTest, LetsAVerdictStandWhileAHostOfItIsSilent) {
    inquiry = HangInquiry(OnHang::stop, 1s);
    inquiry.begin_round(a_round(2));
    hear_that_rank_3_is_missing();
    EXPECT_THAT(inquiry.take_news(now).texts, SizeIs(1));
    for (int i = 0; i < 5; ++i) {
        let_pass(300ms);
        hear_first(2s, 2s, ask());
        let_pass(400ms);
        const HangInquiry::News news = inquiry.take_news(now);
        EXPECT_THAT(news.texts, IsEmpty()) << "neither a word nor the opposite";
        EXPECT_FALSE(news.stops_because_of) << "it is not known to hold";
    }
    let_pass(300ms);
    const std::uint64_t question = ask();
    hear_first(3s, 3s, question);
    hear_second(3s, 0ms, question);
    EXPECT_EQ(inquiry.take_news(now).stops_because_of, 3) << "it has stood for long enough";
}

TEST_F(HangInquiryTest, EndsTheJobWhereThatIsAskedFor) {
    start_over(OnHang::stop);
    hear_that_rank_3_is_missing();
    EXPECT_FALSE(inquiry.take_news(now).stops_because_of) << "where ranks are is asked first";
    let_pass(300ms);
    const std::uint64_t question = ask();
    hear_first(910ms, 910ms, question);
    hear_second(910ms, 0ms, question);
    tell(first_host, {0}, question);
    tell(second_host, {3}, question);
    EXPECT_EQ(inquiry.take_news(now).stops_because_of, 3);
    const auto facts = inquiry.facts(false);
    ASSERT_TRUE(facts);
    EXPECT_TRUE(facts->has_ended_job);
    EXPECT_THAT(facts->stacks, SizeIs(2));
}

// As with --no-stacks there.
TEST_F(HangInquiryTest, EndsTheJobThoughNobodyTellsWhereRanksAre) {
    start_over(OnHang::stop);
    hear_that_rank_3_is_missing();
    const Time verdict = now;
    HangInquiry::News news = inquiry.take_news(now);
    while (!news.stops_because_of && now - verdict < 10s) {
        let_pass(300ms);
        const std::uint64_t question = ask();
        hear_first(2s, 2s, question);
        hear_second(2s, 0ms, question);
        news = inquiry.take_news(now);
    }
    EXPECT_EQ(news.stops_because_of, 3);
    EXPECT_GE(now - verdict, HangInquiry::time_for_stacks);
}

// Where a worker fails meanwhile that is what has ended it.
TEST_F(HangInquiryTest, HasNotEndedAJobThatWaitsForStacks) {
    start_over(OnHang::stop);
    hear_that_rank_3_is_missing();
    EXPECT_FALSE(inquiry.take_news(now).stops_because_of);
    const auto facts = inquiry.facts(true);
    ASSERT_TRUE(facts);
    EXPECT_FALSE(facts->has_ended_job);
}

// Of ranks that record nothing.
class HangByStacks : public HangInquiryTest {
protected:
    static SightingMessage silent(int first_rank, std::uint64_t question) {
        SightingMessage message{.round = 2, .question = question};
        for (const int rank : {first_rank, first_rank + 1}) {
            message.seen.ranks.push_back({.rank = rank});
        }
        return message;
    }
    HangInquiry::News look(const std::optional<Verdict>& by_stacks, bool first_answers = true) {
        inquiry.note_by_stacks(by_stacks);
        let_pass(300ms);
        const std::uint64_t question = ask();
        if (first_answers) inquiry.note(first_host, silent(0, question));
        inquiry.note(second_host, silent(2, question));
        let_pass(first_answers ? 0ms : 410ms);
        return inquiry.take_news(now);
    }

    Verdict found{.kind = Verdict::Kind::missing,
                  .ranks = {3},
                  .waiting = {0, 1, 2},
                  .text = "rank 3 holds up ranks 0-2, in all_reduce (train.py:9), since 35 s"};
};

TEST_F(HangByStacks, IsSaidAndTakenBack) {
    const HangInquiry::News news = look(found);
    EXPECT_THAT(news.texts, ElementsAre(found.text));
    EXPECT_THAT(news.concerned, ElementsAre(second_host));
    EXPECT_THAT(look(found).texts, IsEmpty());
    EXPECT_EQ(inquiry.facts(false)->kind, "missing");
    EXPECT_THAT(look(std::nullopt).texts,
                ElementsAre(HasSubstr("the job goes on: ranks 0-2 had waited for ")));
    EXPECT_FALSE(inquiry.facts(false));
}

// As one whose ranks have ended since.
TEST_F(HangByStacks, IsTakenBackThoughAHostOfItAnswersNoMore) {
    EXPECT_THAT(look(found).texts, SizeIs(1));
    EXPECT_THAT(look(found, false).texts, IsEmpty());
    EXPECT_TRUE(inquiry.facts(false));
    EXPECT_THAT(look(std::nullopt, false).texts, SizeIs(1));
    EXPECT_FALSE(inquiry.facts(false));
}

TEST_F(HangInquiryTest, IsNobodysBusinessWhenItIsOff) {
    start_over(OnHang::ignore);
    hear_first(600ms, 600ms);
    EXPECT_FALSE(inquiry.take_question(now));
    EXPECT_FALSE(inquiry.facts(true));
}

// Of a part that has ended: what its ranks had called, though nobody asked.
TEST_F(HangInquiryTest, FindsADifferenceInTheLastRecords) {
    SightingMessage other = sight(2, 10ms, 10ms);
    other.seen.ranks[1].record.operations.back().call.elements = 127;
    hear_first(10ms, 10ms);
    inquiry.note(second_host, other);
    EXPECT_FALSE(inquiry.facts(false)) << "no worker has failed";
    const auto facts = inquiry.facts(true);
    ASSERT_TRUE(facts);
    EXPECT_EQ(facts->kind, "mismatch");
    EXPECT_THAT(facts->ranks, ElementsAre(3));
    EXPECT_THAT(facts->text, AllOf(HasSubstr("\n  rank 3: all_reduce of 127"),
                                   HasSubstr("\n  ranks 0-2: all_reduce of 128")));
}

TEST_F(HangInquiryTest, HearsNobodyOfAnotherRoundNorOfMoreRanksThanAHostHas) {
    SightingMessage old = sight(0, 600ms, 600ms);
    old.round = 1;
    inquiry.note(first_host, old);
    inquiry.note(5, sight(0, 600ms, 600ms));
    EXPECT_FALSE(inquiry.take_question(now));
    hear_first(600ms, 600ms);
    const std::uint64_t question = ask();
    SightingMessage many = sight(0, 610ms, 0ms, question);
    many.seen.ranks.push_back(rank(2, 0ms));
    inquiry.note(first_host, many);
    hear_first(0ms, 0ms, question + 1);  // of another question
    hear_second(610ms, 610ms, question);
    EXPECT_THAT(inquiry.take_news(now).texts,
                ElementsAre(HasSubstr("rank 1 holds up ranks 0, 2, 3")));
    inquiry.begin_round(a_round(3));
    EXPECT_FALSE(inquiry.take_question(now + 10s));
    EXPECT_FALSE(inquiry.facts(true));
}

}  // namespace
}  // namespace ddp::launcher
