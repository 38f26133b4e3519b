#include "launcher/hosts/inquiries/slow_inquiry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Members 1 and 2.
RoundMessage round_of_two(int number, int slots) {
    RoundMessage round;
    round.round = number;
    round.table.world_size = 2 * slots;
    for (int i = 0; i < 2; ++i) {
        HostRanks& host = round.table.hosts.emplace_back();
        host.member = static_cast<MemberId>(i + 1);
        host.host = "h" + std::to_string(i + 1);
        host.first_rank = i * slots;
        host.slots = slots;
    }
    return round;
}

RankPace pace_of(int rank, double in_calls) {
    RankPace pace{.rank = rank, .pid = 4711 + rank, .in_calls = in_calls};
    pace.groups = {7};
    return pace;
}

class SlowInquiryTest : public ::testing::Test {
protected:
    SlowInquiryTest() { inquiry_.begin_round(round_of_two(3, 1)); }

    void tell(MemberId member, int rank, double in_calls) {
        PacesMessage message{.round = 3, .paces = {.time = 2s}};
        message.paces.ranks.push_back(pace_of(rank, in_calls));
        message.paces.ranks.back().use = ProcessUse{.at = now_};
        inquiry_.note(now_, member, std::move(message));
    }
    // A stretch of both.
    SlowInquiry::News after(double first, double second) {
        now_ += 2s;
        tell(1, 0, first);
        EXPECT_THAT(inquiry_.take_news(now_).texts, IsEmpty()) << "the other has not told";
        tell(2, 1, second);
        return inquiry_.take_news(now_);
    }

    SlowInquiry inquiry_;
    SlowInquiry::Time now_{100s};
};

TEST_F(SlowInquiryTest, ComparesTheRanksOfAllHosts) {
    for (int i = 0; i < 4; ++i) EXPECT_THAT(after(0.5, 0.02).texts, IsEmpty());
    const SlowInquiry::News news = after(0.5, 0.02);
    EXPECT_THAT(news.texts,
                ElementsAre(AllOf(HasSubstr("rank 1 slows down rank 0: in the last 10 s"),
                                  HasSubstr("\n  rank 1 (h2, pid 4712) slept"))));
    EXPECT_THAT(news.concerned, ElementsAre(2));
    for (int i = 0; i < 4; ++i) EXPECT_THAT(after(0.5, 0.45).texts, IsEmpty());
    EXPECT_THAT(after(0.5, 0.45).texts, ElementsAre("rank 1 keeps up with the others again"));
    EXPECT_FALSE(inquiry_.facts());
}

TEST_F(SlowInquiryTest, TakesOfAHostItsOwnRanksAlone) {
    for (int i = 0; i < 10; ++i) {
        now_ += 2s;
        tell(1, 0, 0.5);
        tell(2, 0, 0.02);
        EXPECT_THAT(inquiry_.take_news(now_).texts, IsEmpty());
    }
    inquiry_.note(now_, 9, {.round = 3, .paces = {}});
    inquiry_.note(now_, 1, {.round = 2, .paces = {}});
    EXPECT_THAT(inquiry_.take_news(now_ + 1h).texts, IsEmpty());
}

TEST_F(SlowInquiryTest, WaitsNotForEverForAHostThatTellsNothing) {
    inquiry_.begin_round(round_of_two(4, 2));
    std::vector<std::string> texts;
    for (int i = 0; i < 40; ++i) {
        now_ += 2s;
        PacesMessage message{.round = 4, .paces = {.time = 2s}};
        message.paces.ranks = {pace_of(0, 0.6), pace_of(1, 0.1)};
        inquiry_.note(now_, 1, std::move(message));
        for (std::string& text : inquiry_.take_news(now_).texts) texts.push_back(std::move(text));
    }
    EXPECT_THAT(texts, ElementsAre(HasSubstr("rank 1 slows down rank 0: ")));
}

TEST_F(SlowInquiryTest, NamesTheHostWhoseNetworkLosesPackets) {
    std::vector<std::string> texts;
    for (std::uint64_t i = 0; i < 8; ++i) {
        now_ += 2s;
        for (const MemberId member : {MemberId{1}, MemberId{2}}) {
            PacesMessage message{.round = 3, .paces = {.time = 2s}};
            message.paces.ranks.push_back(pace_of(static_cast<int>(member) - 1, 0.5));
            message.paces.tcp =
                TcpCounts{1000 * i, member == 2 ? 50 * i : 0, now_.time_since_epoch()};
            inquiry_.note(now_, member, std::move(message));
        }
        const SlowInquiry::News news = inquiry_.take_news(now_);
        for (const std::string& text : news.texts) {
            texts.push_back(text);
            EXPECT_THAT(news.concerned, ElementsAre(2));
        }
    }
    EXPECT_THAT(texts,
                ElementsAre(HasSubstr("host h2 sends 4.8 % of its TCP segments again (250 in "
                                      "the last 10 s)")));
    EXPECT_FALSE(inquiry_.facts()) << "no rank is slow";
}

}  // namespace
}  // namespace ddp::launcher
