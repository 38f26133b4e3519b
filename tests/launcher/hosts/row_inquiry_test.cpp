#include "launcher/hosts/inquiries/row_inquiry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two hosts of two ranks each: members 1 and 2.
RoundMessage two_hosts(int number) {
    RoundMessage round;
    round.round = number;
    round.table.world_size = 4;
    for (int i = 0; i < 2; ++i) {
        HostRanks& host = round.table.hosts.emplace_back();
        host.member = static_cast<MemberId>(i + 1);
        host.host = "h" + std::to_string(i + 1);
        host.first_rank = 2 * i;
        host.slots = 2;
    }
    return round;
}

class Rows : public ::testing::Test {
protected:
    Rows() { inquiry_.begin_round(two_hosts(3)); }

    std::uint64_t ask() { return inquiry_.ask(now_).value().question; }
    void tell(MemberId by, std::uint64_t question, const std::vector<int>& ranks, int round = 3) {
        RowsMessage message{.round = round, .question = question};
        for (const int rank : ranks) message.rows.push_back({.host = "liar", .rank = rank});
        inquiry_.note(by, std::move(message));
    }
    std::vector<std::string> shown() const {
        std::vector<std::string> all;
        for (const RankRow& row : inquiry_.rows()) {
            all.push_back(std::to_string(row.rank) + " on " + row.host);
        }
        return all;
    }

    RowInquiry inquiry_;
    RowInquiry::Time now_{1h};
};

TEST_F(Rows, AreWaitedForUntilAllHaveAnswered) {
    EXPECT_TRUE(inquiry_.is_answered(now_));
    const std::uint64_t question = ask();
    EXPECT_FALSE(inquiry_.is_answered(now_));
    tell(2, question, {2, 3});
    EXPECT_FALSE(inquiry_.is_answered(now_));
    tell(1, question, {1, 0});
    EXPECT_TRUE(inquiry_.is_answered(now_));
    EXPECT_THAT(shown(), ElementsAre("0 on h1", "1 on h1", "2 on h2", "3 on h2"));
}

TEST_F(Rows, AreWaitedForNoLongerThanThat) {
    const std::uint64_t question = ask();
    tell(2, question, {3});
    now_ += RowInquiry::time_to_answer;
    EXPECT_TRUE(inquiry_.is_answered(now_));
    EXPECT_THAT(shown(), ElementsAre("3 on h2"));
}

TEST_F(Rows, AreAskedForOnceForAllWhoWait) {
    const std::uint64_t question = ask();
    EXPECT_FALSE(inquiry_.ask(now_));
    tell(1, question, {0});
    tell(2, question, {2});
    EXPECT_NE(ask(), question);
    EXPECT_THAT(shown(), IsEmpty());
}

TEST_F(Rows, AreThoseOfTheOthers) {
    RoundMessage round = two_hosts(4);
    EXPECT_THAT(inquiry_.others(), ElementsAre(1, 2));
    round.coordinator = 1;
    inquiry_.begin_round(round);
    EXPECT_THAT(inquiry_.others(), ElementsAre(2));
    const std::uint64_t question = ask();
    tell(1, question, {0}, 4);
    EXPECT_FALSE(inquiry_.is_answered(now_));
    tell(2, question, {2}, 4);
    EXPECT_TRUE(inquiry_.is_answered(now_));
    EXPECT_THAT(shown(), ElementsAre("2 on h2"));
}

TEST_F(Rows, OfAHostWhereNothingRunsAreNone) {
    const std::uint64_t question = ask();
    tell(1, question, {});
    tell(2, question, {2});
    EXPECT_TRUE(inquiry_.is_answered(now_));
    EXPECT_THAT(shown(), ElementsAre("2 on h2"));
}

TEST_F(Rows, OfAHostWhoseWorkersHaveEndedAreAsTheyWereThen) {
    tell(1, ask(), {0});
    tell(1, unasked, {1, 0});
    EXPECT_FALSE(inquiry_.is_answered(now_));
    EXPECT_THAT(shown(), ElementsAre("0 on h1", "1 on h1"));
    now_ += RowInquiry::time_to_answer;
    const std::uint64_t question = ask();
    tell(1, question, {});
    tell(2, question, {2});
    EXPECT_THAT(shown(), ElementsAre("0 on h1", "1 on h1", "2 on h2"));
    EXPECT_EQ(inquiry_.rows_at_end().size(), 2U) << "the second host may be lost";
    inquiry_.begin_round(two_hosts(4));
    EXPECT_THAT(shown(), IsEmpty());
    tell(1, unasked, {0});
    EXPECT_THAT(shown(), IsEmpty()) << "of a round before";
}

TEST_F(Rows, AreThoseThatAMemberHasAndEachOnce) {
    const std::uint64_t question = ask();
    tell(1, question, {0, 2, -1, 4, 0});
    EXPECT_THAT(shown(), ElementsAre("0 on h1"));
    tell(1, question, {1});  // what it says last counts
    EXPECT_THAT(shown(), ElementsAre("1 on h1"));
}

TEST_F(Rows, OfStrangersOtherQuestionsAndOtherRoundsAreNone) {
    const std::uint64_t question = ask();
    tell(3, question, {0});
    tell(1, question + 1, {0});
    tell(1, question, {0}, 2);
    EXPECT_THAT(shown(), IsEmpty());
    EXPECT_FALSE(inquiry_.is_answered(now_));
    inquiry_.begin_round(two_hosts(4));
    EXPECT_TRUE(inquiry_.is_answered(now_));
    tell(1, question, {0});
    EXPECT_THAT(shown(), IsEmpty());
}

}  // namespace
}  // namespace ddp::launcher
