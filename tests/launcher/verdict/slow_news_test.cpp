// Ranks of made-up steps, one of which computes for longer, as they are seen four times a second.
#include "launcher/verdict/slow_news.hpp"

#include "launcher/verdict/call_shares.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using contract::Collective;
using contract::OperationRecord;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Duration = CallShares::Duration;

constexpr std::uint32_t all = 7;

class UnequalJob {
public:
    explicit UnequalJob(int size) : size_(size), done_(static_cast<std::size_t>(size)) {}

    // How long a rank computes before a call; else 30 ms.
    std::map<int, Duration> computes{};
    Collective call = Collective::all_reduce;
    bool overlaps = false;  // each call is under way while the next part is computed
    bool on_gpu = false;
    std::optional<int> at_checkpoint{};
    Duration evaluates{};  // rank 0, before its next call
    std::map<int, ProcessUse> uses{};
    RankState::Time resumed{};

    std::vector<std::string> run(Duration time) {
        std::vector<std::string> texts;
        const RankState::Time until = now_ + time;
        while (now_ < until) {
            step();
            if (now_ < next_look_) continue;
            next_look_ = now_ + 250ms;
            for (std::string& text : look()) texts.push_back(std::move(text));
        }
        return texts;
    }
    std::vector<std::string> look() {
        std::vector<RankState> ranks;
        for (int rank = 0; rank < size_; ++rank) {
            RankState& state = ranks.emplace_back(RankState{.rank = rank});
            state.record.pid = 4711 + rank;
            state.record.is_at_checkpoint = at_checkpoint == rank;
            state.record.groups = {{.id = all, .size = size_, .on_gpu = on_gpu}};
            const auto& done = done_[static_cast<std::size_t>(rank)];
            state.record.operations.assign(done.begin(), done.end());
        }
        shares_.note(now_, ranks, resumed);
        const auto paces = shares_.take_paces(now_, ranks);
        if (!paces) return {};
        return news.consider(*paces, [&](int rank) {
            const auto use = uses.find(rank);
            return use == uses.end() ? std::nullopt : std::optional(use->second);
        });
    }

    SlowNews news{};

private:
    // Two calls, which all come to and which end when the last has.
    void step() {
        std::vector<RankState::Time> at(done_.size(), now_);
        for (int part = 0; part < 2; ++part) {
            ++calls_;
            for (int rank = 0; rank < size_; ++rank) {
                const auto own = computes.find(rank);
                at[static_cast<std::size_t>(rank)] += own == computes.end() ? 30ms : own->second;
            }
            at[0] += std::exchange(evaluates, Duration(0));
            const RankState::Time end = *std::ranges::max_element(at) + 1ms;
            for (std::size_t rank = 0; rank < at.size(); ++rank) {
                auto& done = done_[rank];
                done.push_back({.serial = calls_,
                                .group = all,
                                .sequence = calls_,
                                .call = {.kind = call},
                                .started = at[rank],
                                .ended = end});
                if (done.size() > 64) done.pop_front();
                if (!overlaps || part == 1) at[rank] = end;
            }
            now_ = end;
        }
    }

    int size_;
    CallShares shares_;
    RankState::Time now_{1s};
    RankState::Time next_look_{1s};
    std::uint64_t calls_ = 0;
    std::vector<std::deque<OperationRecord>> done_;
};

TEST(SlowNews, NamesARankThatOthersWaitForAgainAndAgainOnce) {
    UnequalJob job(3);
    EXPECT_THAT(job.run(30s), IsEmpty());
    job.computes[1] = 60ms;
    EXPECT_THAT(job.run(8s), IsEmpty());
    EXPECT_THAT(job.run(6s),
                ElementsAre(AllOf(HasSubstr("rank 1 slows down ranks 0, 2: in the last 1"),
                                  HasSubstr(" spent 2 % of the time in collectives"),
                                  HasSubstr("the others 51 %"))));
    EXPECT_THAT(job.run(60s), IsEmpty());
    ASSERT_TRUE(job.news.facts());
    EXPECT_THAT(job.news.facts()->ranks, ElementsAre(1));
    job.computes.clear();
    EXPECT_THAT(job.run(14s), ElementsAre("rank 1 keeps up with the others again"));
    EXPECT_FALSE(job.news.facts());
}

// As where it evaluates, or writes a checkpoint of its own.
TEST(SlowNews, SaysNothingOfOneLongWaitInEachStretch) {
    UnequalJob job(3);
    std::vector<std::string> texts;
    for (int i = 0; i < 30; ++i) {
        job.evaluates = 900ms;
        for (std::string& text : job.run(2100ms)) texts.push_back(std::move(text));
    }
    EXPECT_THAT(texts, IsEmpty());
}

TEST(SlowNews, NamesSeveralTogether) {
    UnequalJob job(8);
    job.computes = {{2, 50ms}, {5, 50ms}, {6, 52ms}};
    EXPECT_THAT(
        job.run(16s),
        ElementsAre(HasSubstr("ranks 2, 5, 6 slow down ranks 0, 1, 3, 4, 7: in the last ")));
}

// The first waits for none, the second for the first, and the third for both.
TEST(SlowNews, NamesWhomAllWaitFor) {
    UnequalJob job(3);
    job.computes = {{0, 60ms}, {1, 42ms}, {2, 25ms}};
    EXPECT_THAT(job.run(16s), ElementsAre(HasSubstr("rank 0 slows down ranks 1, 2: ")));
}

TEST(SlowNews, TellsWhatEachThatStandsWasSaid) {
    UnequalJob job(5);
    job.computes[1] = 60ms;
    EXPECT_THAT(job.run(16s), ElementsAre(HasSubstr("rank 1 slows down")));
    job.computes[2] = 60ms;
    EXPECT_THAT(job.run(16s), ElementsAre(HasSubstr("rank 2 slows down ranks 0, 3, 4: ")));
    EXPECT_THAT(job.news.facts()->text,
                AllOf(HasSubstr("rank 1 slows"), HasSubstr("rank 2 slows")));
    job.computes.erase(2);
    EXPECT_THAT(job.run(16s), ElementsAre("rank 2 keeps up with the others again"));
    EXPECT_THAT(job.news.facts()->ranks, ElementsAre(1));
    EXPECT_THAT(job.news.facts()->text, Not(HasSubstr("rank 2 slows")));
}

// In a grid of two by two rank 1 computes for longer: 0 waits for it in their row, 3 in their
// column, and 2 for 0.
TEST(SlowNews, BlamesNobodyWhoWaitsInAnotherGroup) {
    constexpr std::uint32_t rows = 100;
    constexpr std::uint32_t columns = 200;
    CallShares shares;
    SlowNews news;
    std::vector<std::string> texts;
    std::array<std::deque<OperationRecord>, 4> done;
    std::array<std::uint64_t, 4> calls{};
    std::array<RankState::Time, 4> at{};
    at.fill(RankState::Time(1s));
    const auto meet = [&](std::size_t one, std::size_t other, std::uint32_t id) {
        const RankState::Time end = std::max(at[one], at[other]) + 1ms;
        for (const std::size_t rank : {one, other}) {
            done[rank].push_back({.serial = ++calls[rank],
                                  .group = id,
                                  .sequence = calls[rank],
                                  .call = {.kind = Collective::all_reduce},
                                  .started = at[rank],
                                  .ended = end});
            if (done[rank].size() > 64) done[rank].pop_front();
            at[rank] = end;
        }
    };
    for (int step = 0; step < 300; ++step) {
        for (std::size_t rank = 0; rank < 4; ++rank) at[rank] += rank == 1 ? 60ms : 20ms;
        meet(0, 1, rows);
        meet(2, 3, rows + 1);
        meet(0, 2, columns);
        meet(1, 3, columns + 1);
        std::vector<RankState> ranks;
        for (std::size_t rank = 0; rank < 4; ++rank) {
            RankState& state = ranks.emplace_back(RankState{.rank = static_cast<int>(rank)});
            const auto row = static_cast<std::uint32_t>(rank / 2);
            const auto column = static_cast<std::uint32_t>(rank % 2);
            state.record.groups = {{.id = rows + row, .size = 2},
                                   {.id = columns + column, .size = 2}};
            state.record.operations.assign(done[rank].begin(), done[rank].end());
        }
        shares.note(at[0], ranks, {});
        const auto paces = shares.take_paces(at[0], ranks);
        if (!paces) continue;
        const auto no_use = [](int) { return std::optional<ProcessUse>(); };
        for (std::string& text : news.consider(*paces, no_use)) texts.push_back(std::move(text));
    }
    EXPECT_THAT(texts, ElementsAre(HasSubstr("rank 1 slows down ranks 0, 3: ")));
}

// What had begun before the host went on is not known.
TEST(SlowNews, CountsNoStandstill) {
    UnequalJob job(3);
    job.computes[1] = 60ms;
    EXPECT_THAT(job.run(9s), IsEmpty());
    job.resumed = RankState::Time(1h);
    EXPECT_THAT(job.run(60s), IsEmpty());
    job.resumed = {};
    EXPECT_THAT(job.run(16s), ElementsAre(HasSubstr("rank 1 slows down")));
}

TEST(SlowNews, SeesItInCallsThatOverlap) {
    UnequalJob job(4);
    job.overlaps = true;
    EXPECT_THAT(job.run(16s), IsEmpty());
    job.computes[3] = 60ms;
    EXPECT_THAT(job.run(16s), ElementsAre(HasSubstr("rank 3 slows down ranks 0-2: ")));
}

TEST(SlowNews, SaysNothingOfWhatDoesNotLast) {
    UnequalJob job(4);
    for (int i = 0; i < 20; ++i) {
        job.computes[i % 4] = 90ms;
        EXPECT_THAT(job.run(5s), IsEmpty());
        job.computes.clear();
        EXPECT_THAT(job.run(3s), IsEmpty());
    }
    // Ten percent are not much.
    job.computes[0] = 33ms;
    EXPECT_THAT(job.run(60s), IsEmpty());
}

TEST(SlowNews, SaysNothingWhereOthersNeedNotWait) {
    for (const Collective call : {Collective::broadcast, Collective::gather, Collective::reduce}) {
        UnequalJob job(3);
        job.call = call;
        job.computes[1] = 90ms;
        EXPECT_THAT(job.run(20s), IsEmpty());
    }
    UnequalJob on_gpu(3);
    on_gpu.on_gpu = true;
    on_gpu.computes[1] = 90ms;
    EXPECT_THAT(on_gpu.run(20s), IsEmpty());
    UnequalJob saving(3);
    saving.computes[0] = 90ms;
    saving.at_checkpoint = 0;
    EXPECT_THAT(saving.run(20s), IsEmpty());
}

TEST(SlowNews, ForgetsWhoHasEnded) {
    UnequalJob job(3);
    job.computes[1] = 60ms;
    EXPECT_THAT(job.run(16s), ElementsAre(HasSubstr("rank 1 slows down")));
    job.news.forget(0);
    EXPECT_TRUE(job.news.facts());
    job.news.forget(1);
    EXPECT_FALSE(job.news.facts());
}

TEST(SlowNews, SaysWhatDiffers) {
    UnequalJob job(3);
    const ProcessUse::Time start{};
    for (int rank = 0; rank < 3; ++rank) job.uses[rank] = {.at = start, .waited_for_processor = 0s};
    job.computes[1] = 60ms;
    EXPECT_THAT(job.run(4s), IsEmpty());
    for (auto& [rank, use] : job.uses) use.at = start + 10s;
    job.uses[1].waited_for_processor = 4s;
    job.uses[1].processors = "3";
    EXPECT_THAT(job.run(10s), ElementsAre(HasSubstr(
                                  "\n  rank 1 (pid 4712) waited for a processor for 40 % of the "
                                  "time (the others 0 %): others run on its processors (3)")));
}

// As of a host that has told nothing of them since: it would seem to sleep.
TEST(SlowNews, SaysNothingOfAnOldLookAtAProcess) {
    UnequalJob job(3);
    for (int rank = 0; rank < 3; ++rank) job.uses[rank] = {.processors = "0-3"};
    job.computes[1] = 60ms;
    EXPECT_THAT(job.run(14s), ElementsAre(AllOf(HasSubstr("rank 1 slows down ranks 0, 2: "),
                                                Not(HasSubstr("\n")))));
}

}  // namespace
}  // namespace ddp::launcher
