// Who holds up a job of two hosts with two ranks each that record nothing, from what the hosts
// tell: without a network, in made-up time.
#include "launcher/hosts/inquiries/silent_inquiry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::array<MemberId, 2> silent_hosts{4, 9};

RoundMessage a_silent_round(int number) {
    const std::vector<HostSize> hosts{{.member = silent_hosts[0], .host = "h1", .slots = 2},
                                      {.member = silent_hosts[1], .host = "h2", .slots = 2}};
    return {.round = number, .table = make_rank_table(hosts)};
}

class SilentInquiryTest : public ::testing::Test {
protected:
    SilentInquiryTest() { inquiry.begin_round(a_silent_round(2)); }

    ThreadsMessage threads(int host) {
        ThreadsMessage message{.round = 2};
        for (const int rank : {2 * host, 2 * host + 1}) {
            if (ended.contains(rank)) continue;
            for (const bool is_of_first : {true, false}) {
                message.threads.push_back(
                    {.rank = rank,
                     .pid = 100 + rank,
                     .is_of_first = is_of_first,
                     .runs = {.switches = switches.at(at(rank)), .cpu = polled(rank)},
                     .looks = 4,
                     .waits = waits.at(at(rank)),
                     .use = is_of_first ? use(rank) : std::nullopt});
            }
        }
        return message;
    }
    ReadingsMessage readings(int host, std::uint64_t question) {
        ReadingsMessage message{.round = 2, .question = question};
        for (const int rank : {2 * host, 2 * host + 1}) {
            if (ended.contains(rank)) {
                message.ended.push_back(rank);
                continue;
            }
            RankReading one{
                .rank = rank,
                .pid = 100 + rank,
                .is_whole = problem(rank).empty(),
                .in_python = true,
                .problem = problem(rank),
                .at = read_at,
                .own_frame = "load (train.py:5)",
                .process = {.pid = 100 + rank, .state = 'S', .cpu_time = cpu, .waits_in = "futex"}};
            if (calls(rank)) {
                one.call = StackCall{"all_reduce", "train.py:9", one.pid};
                one.runs = ThreadRuns{.switches = switches.at(at(rank)), .cpu = polled(rank)};
            }
            message.ranks.push_back(std::move(one));
        }
        return message;
    }
    // Both hosts tell each second, and answer at once, but for those that are mute; what is said.
    std::vector<std::string> let_pass(std::chrono::seconds time) {
        std::vector<std::string> said;
        for (const auto end = now + time; now < end;) {
            now += 1s;
            each_second();
            for (int host = 0; host < 2; ++host) {
                if (!mute.contains(host))
                    inquiry.note(now, silent_hosts.at(at(host)), threads(host));
            }
            if (const auto question = inquiry.take_question(now)) {
                ++asked;
                on_reading();
                for (int host = 0; host < 2; ++host) {
                    if (mute.contains(host)) continue;
                    inquiry.note(silent_hosts.at(at(host)), readings(host, question->question));
                }
                EXPECT_FALSE(inquiry.take_question(now));  // judges
            }
            SilentInquiry::News news = inquiry.take_news();
            for (std::string& text : news.texts) {
                said.push_back(std::move(text));
                concerned = news.concerned;
            }
        }
        return said;
    }
    static std::size_t at(int index) { return static_cast<std::size_t>(index); }

    std::function<std::chrono::nanoseconds(int)> polled = [](int) { return 0ns; };
    std::function<std::optional<ProcessUse>(int)> use = [](int) { return std::nullopt; };
    SilentInquiry::Time now{1h};
    SilentInquiry inquiry;
    std::array<std::uint64_t, 4> switches{};
    std::array<int, 4> waits{};  // of four looks
    std::function<void()> each_second = [] {};
    std::function<bool(int)> calls = [](int rank) { return rank != 3; };
    std::function<std::string(int)> problem = [](int) { return ""; };
    std::function<void()> on_reading = [] {};
    SilentInquiry::Time read_at{};
    std::chrono::milliseconds cpu{0};
    std::set<int> ended;
    std::set<int> mute;
    int asked = 0;
    std::vector<MemberId> concerned;
};

TEST_F(SilentInquiryTest, BlamesTheRankOfAnotherHostThatIsInNoCall) {
    let_pass(30s);
    EXPECT_EQ(asked, 0);
    let_pass(10s);
    ASSERT_TRUE(inquiry.verdict());
    EXPECT_EQ(asked, 2);
    EXPECT_THAT(inquiry.verdict()->ranks, ElementsAre(3));
    EXPECT_THAT(inquiry.verdict()->waiting, ElementsAre(0, 1, 2));
    EXPECT_THAT(inquiry.verdict()->text,
                AllOf(HasSubstr("rank 3 holds up ranks 0-2, in all_reduce (train.py:9), since "),
                      HasSubstr("\n  rank 3 (h2, pid 103) sleeps in futex, in load (train.py:5)")));
    let_pass(600s);
    EXPECT_TRUE(inquiry.verdict());
    EXPECT_EQ(asked, 2);
}

TEST_F(SilentInquiryTest, TakesItBackWhenAThreadOfAnyHostHasRun) {
    let_pass(40s);
    ASSERT_TRUE(inquiry.verdict());
    switches[2] += 100;
    let_pass(2s);
    EXPECT_FALSE(inquiry.verdict());
}

TEST_F(SilentInquiryTest, AsksNobodyWhileAllRun) {
    each_second = [&] {
        for (auto& one : switches) one += 7;
    };
    let_pass(600s);
    EXPECT_EQ(asked, 0);
}

// It may be the one that the others wait for.
TEST_F(SilentInquiryTest, JudgesNothingWithoutAHost) {
    mute = {1};
    let_pass(600s);
    EXPECT_EQ(asked, 0) << "it records, or its agent stands still";
    mute.clear();
    let_pass(29s);
    EXPECT_EQ(asked, 0);
    inquiry.note(now += 1s, silent_hosts[0], threads(0));
    inquiry.note(now, silent_hosts[1], threads(1));
    while (!inquiry.take_question(now)) {
        now += 1s;
        inquiry.note(now, silent_hosts[0], threads(0));
        inquiry.note(now, silent_hosts[1], threads(1));
    }
    inquiry.note(silent_hosts[0], readings(0, 1));
    now += SilentInquiry::time_to_answer;
    EXPECT_FALSE(inquiry.take_question(now));
    EXPECT_FALSE(inquiry.verdict());
    let_pass(5s);
    EXPECT_EQ(asked, 0) << "that was no first reading of two";
}

// What a host has told before it has read its ranks is no sign that they have run since.
TEST_F(SilentInquiryTest, BelievesNothingThatIsOlderThanTheReading) {
    let_pass(30s);
    for (int i = 0; i < 40 && !inquiry.verdict(); ++i) {
        now += 1s;
        for (int host = 0; host < 2; ++host)
            inquiry.note(now, silent_hosts.at(at(host)), threads(host));
        const auto question = inquiry.take_question(now);
        if (!question) continue;
        for (auto& one : switches) one += 4;  // by the readers
        for (int host = 0; host < 2; ++host) {
            inquiry.note(silent_hosts.at(at(host)), readings(host, question->question));
        }
        EXPECT_FALSE(inquiry.take_question(now));
    }
    ASSERT_TRUE(inquiry.verdict());
    now += 1s;
    EXPECT_FALSE(inquiry.take_question(now));
    let_pass(5s);
    EXPECT_TRUE(inquiry.verdict());
}

TEST_F(SilentInquiryTest, SaysThatRanksWaitForOneThatHasEnded) {
    ended = {3};
    let_pass(40s);
    ASSERT_TRUE(inquiry.verdict());
    EXPECT_EQ(inquiry.verdict()->kind, Verdict::Kind::ahead);
    EXPECT_THAT(inquiry.verdict()->text, HasSubstr("rank 3 never will be: it has ended"));
}

// Its agent looks at nobody any more.
TEST_F(SilentInquiryTest, NeedsNothingOfAHostWhoseRanksHaveEnded) {
    calls = [](int) { return true; };
    mute = {1};
    for (const int rank : {2, 3}) {
        EndedMessage end;
        end.round = 2;
        end.end.rank = rank;
        inquiry.note(silent_hosts[0], end);  // not its own
        inquiry.note(silent_hosts[1], end);
    }
    let_pass(40s);
    ASSERT_TRUE(inquiry.verdict());
    EXPECT_EQ(inquiry.verdict()->kind, Verdict::Kind::ahead);
    EXPECT_THAT(inquiry.verdict()->text, HasSubstr("ranks 2, 3 never will be: they have ended"));
}

TEST_F(SilentInquiryTest, TakesItBackWhenARankRecords) {
    let_pass(40s);
    ASSERT_TRUE(inquiry.verdict());
    SightingMessage seen{.round = 1, .seen = {.ranks = {{.rank = 0}, {.rank = 1}}}};
    seen.seen.ranks[1].record.pid = 101;
    inquiry.note(seen);
    EXPECT_TRUE(inquiry.verdict()) << "that was another round";
    seen.round = 2;
    inquiry.note(seen);
    EXPECT_FALSE(inquiry.verdict());
    seen.seen.ranks[1].record.pid = 0;
    let_pass(40s);
    inquiry.note(seen);
    EXPECT_TRUE(inquiry.verdict());
}

TEST_F(SilentInquiryTest, TakesItBackWhenAHostTellsNothingForLong) {
    let_pass(40s);
    ASSERT_TRUE(inquiry.verdict());
    mute = {1};
    let_pass(25s);
    EXPECT_TRUE(inquiry.verdict()) << "it may stand still";
    let_pass(10s);
    EXPECT_FALSE(inquiry.verdict());
}

// A processor's time is compared with the time of the host on which it was used.
TEST_F(SilentInquiryTest, GoesByTheClocksOfHosts) {
    const auto is_busy = [&](std::chrono::seconds between) {
        inquiry.begin_round(a_silent_round(2));
        cpu = 0ms;
        read_at = SilentInquiry::Time(7h);
        on_reading = [&, between] {
            cpu += 100ms;
            read_at += between;
        };
        let_pass(40s);
        return inquiry.verdict() && !inquiry.verdict()->may_end_job;
    };
    EXPECT_TRUE(is_busy(5s)) << "2 %";
    EXPECT_FALSE(is_busy(20s)) << "0.5 %";
}

TEST_F(SilentInquiryTest, HearsOfRanksFromTheirHostAlone) {
    calls = [](int) { return true; };
    let_pass(30s);
    std::uint64_t question = 0;
    while (question == 0) {
        now += 1s;
        for (int host = 0; host < 2; ++host)
            inquiry.note(now, silent_hosts.at(at(host)), threads(host));
        if (const auto asks = inquiry.take_question(now)) question = asks->question;
    }
    inquiry.note(77, readings(1, question));               // no member
    inquiry.note(silent_hosts[0], readings(1, question));  // of another's ranks
    inquiry.note(silent_hosts[1], readings(1, question + 1));
    EXPECT_FALSE(inquiry.take_question(now)) << "one has not answered";
    inquiry.note(silent_hosts[1], readings(1, question));
    EXPECT_FALSE(inquiry.take_question(now));
    let_pass(5s);
    EXPECT_EQ(asked, 0) << "of two ranks nobody has told";
}

TEST_F(SilentInquiryTest, ForgetsAllWithTheRound) {
    let_pass(40s);
    ASSERT_TRUE(inquiry.verdict());
    inquiry.begin_round(a_silent_round(3));
    EXPECT_FALSE(inquiry.verdict());
    asked = 0;
    let_pass(600s);
    EXPECT_EQ(asked, 0) << "that is told of the round before";
}

TEST_F(SilentInquiryTest, BlamesTheRankThatOthersPollFor) {
    polled = [&](int rank) { return rank == 3 ? 0ns : now.time_since_epoch() / 2; };
    on_reading = [&] { read_at = now + 5h; };  // by their clocks
    let_pass(60s);
    EXPECT_EQ(asked, StackJudge::pairs_of_polls + 1);
    ASSERT_TRUE(inquiry.verdict());
    EXPECT_THAT(inquiry.verdict()->ranks, ElementsAre(3));
    EXPECT_THAT(inquiry.verdict()->waiting, ElementsAre(0, 1, 2));
    EXPECT_THAT(inquiry.verdict()->text, HasSubstr("\n  rank 3 (h2, pid 103) sleeps in futex, in "
                                                   "load (train.py:5); it has not run for "));
    EXPECT_FALSE(inquiry.verdict()->may_end_job);
    let_pass(1h);
    EXPECT_TRUE(inquiry.verdict());
    switches[3] += 30;
    let_pass(40s);
    EXPECT_FALSE(inquiry.verdict());
}

TEST_F(SilentInquiryTest, SaysOnceOfWhichRanksNothingIsKnown) {
    problem = [](int rank) { return rank == 3 ? "libdw is not there" : ""; };
    EXPECT_THAT(let_pass(600s), ElementsAre("whether the job hangs cannot be told: the stacks of "
                                            "rank 3 are not known in full\n"
                                            "  rank 3 (h2, pid 103): libdw is not there"));
    EXPECT_THAT(concerned, ElementsAre(silent_hosts[1]));
    EXPECT_FALSE(inquiry.verdict());
    inquiry.begin_round(a_silent_round(2));
    EXPECT_THAT(let_pass(600s), SizeIs(1));
}

// Where all others wait for it again and again.
TEST_F(SilentInquiryTest, NamesARankThatSlowsDownThoseOfAllHosts) {
    waits = {2, 2, 2, 0};
    int second = 0;
    each_second = [&] {
        for (auto& one : switches) one += 5;
        ++second;
    };
    calls = [&](int rank) { return rank != 3 || second % 8 == 0; };
    // Of a host the clock of which shows something else; now and then. Rank 3 sleeps.
    use = [&](int rank) {
        const auto time = (now - SilentInquiry::Time()) * (rank == 3 ? 1 : 8) / 10;
        const ProcessUse so_far{.at = now + 5h, .cpu = time};
        return second % 4 == 0 ? std::optional(so_far) : std::nullopt;
    };
    const auto said = let_pass(150s);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_THAT(said[0], AllOf(HasSubstr("rank 3 slows down ranks 0-2: in the last "),
                               HasSubstr("the others 50 %"),
                               HasSubstr("\n  rank 3 (h2, pid 103) slept: it used 10 % of a "),
                               HasSubstr("\n  rank 3 was in no collective in "),
                               HasSubstr(" of them in load (train.py:5)")));
    EXPECT_THAT(concerned, ElementsAre(silent_hosts[1]));
    ASSERT_TRUE(inquiry.slow());
    EXPECT_THAT(inquiry.slow()->ranks, ElementsAre(3));
    waits[3] = 2;
    EXPECT_THAT(let_pass(150s), ElementsAre("rank 3 keeps up with the others again"));
    EXPECT_THAT(concerned, ElementsAre(silent_hosts[1]));
    EXPECT_FALSE(inquiry.slow());
    EXPECT_THAT(let_pass(100s), IsEmpty());
}

}  // namespace
}  // namespace ddp::launcher
