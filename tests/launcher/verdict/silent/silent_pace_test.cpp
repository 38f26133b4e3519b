// Jobs of which is seen only who waits when it is looked at, and now and then a stack.
#include "launcher/verdict/silent/silent_pace.hpp"
#include "launcher/verdict/silent/silent_threads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <random>
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

class SilentJob : public ::testing::Test {
protected:
    // For so long, ranks wait that part of their time; in `reading` who is in a collective, when
    // that is asked. What is said.
    std::vector<std::string> run(std::chrono::seconds time) {
        std::vector<std::string> said;
        const auto until = now_ + time;
        for (; now_ < until; now_ += SilentThreads::between_looks) {
            std::vector<RankRuns> looks;
            for (const auto& [rank, share] : waiting_) {
                looks.push_back(
                    {.rank = rank,
                     .pid = 100 + rank,
                     .runs = {.switches = switches_[rank] += share > 0.2 ? wakes_in_a_look_ : 0},
                     .looks = 1,
                     .waits = std::bernoulli_distribution(share)(random_) ? 1 : 0});
            }
            pace_.note(now_, looks, [](int) { return std::nullopt; });
            if (pace_.is_time_to_read(now_)) {
                ++readings_;
                std::vector<RankReading> all;
                for (RankStacks one : stacks()) {
                    spoil_(one);
                    all.push_back(reading_of(one));
                }
                pace_.judge(now_, all);
            }
            for (std::string& text : pace_.take_news()) said.push_back(std::move(text));
        }
        return said;
    }
    std::vector<RankStacks> stacks() {
        std::vector<RankStacks> all;
        for (const auto& [rank, share] : in_collectives_) {
            const bool is_in = std::bernoulli_distribution(share)(random_);
            const pid_t pid = 100 + rank;
            ThreadStack stack{.tid = pid,
                              .frames = {"load (train.py:9)", "main (train.py:20)"},
                              .own_frame = "load (train.py:9)"};
            if (is_in) {
                const std::string own = line_of_[rank];
                stack.frames = {call_ + " (distributed_c10d.py:100)", own};
                stack.own_frame = own;
            }
            all.push_back({.rank = rank, .pid = pid, .python = {stack}, .has_all_native = true});
        }
        return all;
    }

    std::mt19937 random_{11};
    std::map<int, double> waiting_{{0, 0.5}, {1, 0.05}, {2, 0.45}};
    std::map<int, double> in_collectives_{{0, 0.6}, {1, 0.12}, {2, 0.6}};
    std::string call_ = "all_reduce";
    std::map<int, std::string> line_of_{{0, "main (train.py:21)"},
                                        {1, "main (train.py:21)"},
                                        {2, "main (train.py:21)"},
                                        {3, "main (train.py:21)"}};
    std::map<int, std::uint64_t> switches_;
    std::uint64_t wakes_in_a_look_ = 1;  // of who waits; who computes is not woken
    SilentPace::Time now_ = SilentPace::Time() + 1h;
    SilentPace pace_;
    int readings_ = 0;
    std::function<void(RankStacks&)> spoil_ = [](RankStacks&) {};
};

TEST_F(SilentJob, SaysWhoIsSlowAndWhereItIsThen) {
    const auto said = run(120s);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_THAT(said[0], AllOf(HasSubstr("rank 1 slows down ranks 0, 2: in the last "),
                               HasSubstr(" of the time waiting, the others "),
                               HasSubstr("\n  rank 1 was in no collective in "),
                               HasSubstr(" readings of its stack, in "),
                               HasSubstr(" of them in load (train.py:9)")));
    ASSERT_TRUE(pace_.facts());
    EXPECT_THAT(pace_.facts()->ranks, ElementsAre(1));
    EXPECT_EQ(pace_.facts()->text, said[0]);
    EXPECT_GE(readings_, SilentPace::least_readings);
    const int readings = readings_;
    EXPECT_THAT(run(600s), IsEmpty()) << "it is said once";
    EXPECT_EQ(readings_, readings);
}

TEST_F(SilentJob, SaysWhenItKeepsUpAgain) {
    ASSERT_THAT(run(120s), SizeIs(1));
    waiting_[1] = 0.45;
    EXPECT_THAT(run(120s), ElementsAre("rank 1 keeps up with the others again"));
    EXPECT_FALSE(pace_.facts());
    waiting_[1] = 0.05;
    EXPECT_THAT(run(120s), SizeIs(1));
}

TEST_F(SilentJob, ReadsAgainBeforeItSaysAnotherOne) {
    waiting_[3] = in_collectives_[3] = 0.5;
    waiting_[4] = in_collectives_[4] = 0.5;
    line_of_[4] = line_of_[3];
    ASSERT_THAT(run(120s), SizeIs(1));
    const int readings = readings_;
    waiting_[3] = 0.05;
    in_collectives_[3] = 0.12;
    const auto said = run(120s);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_THAT(said[0], HasSubstr("rank 3 slows down ranks "));
    EXPECT_GE(readings_ - readings, SilentPace::least_readings);
    EXPECT_THAT(pace_.facts()->ranks, ElementsAre(1, 3));
}

// As of a server and its clients, each of which does something of its own.
TEST_F(SilentJob, SaysNothingOfProgramsWithoutCollectives) {
    in_collectives_ = {{0, 0.0}, {1, 0.0}, {2, 0.0}};
    EXPECT_THAT(run(1h), IsEmpty());
    EXPECT_FALSE(pace_.facts());
    EXPECT_LE(readings_, 7 * SilentPace::most_readings) << "it asks less and less often";
    EXPECT_GE(readings_, 3 * SilentPace::most_readings);
}

// A master that waits for what its workers send.
TEST_F(SilentJob, SaysNothingOfCallsInWhichNotAllWaitForAll) {
    for (const char* const call : {"recv", "broadcast", "gather", "new_group"}) {
        call_ = call;
        EXPECT_THAT(run(600s), IsEmpty()) << call;
    }
}

// As of an evaluator beside those that train: it is in none of theirs.
TEST_F(SilentJob, SaysNothingOfRanksThatAreInOtherCollectives) {
    line_of_[1] = "evaluate (evaluate.py:3)";
    EXPECT_THAT(run(600s), IsEmpty());
}

// Who prepares the data of all in a pool of its own waits for that.
TEST_F(SilentJob, SaysNothingWhereTheSuspectIsInCollectivesAsOftenAsTheOthers) {
    in_collectives_[1] = 0.6;
    EXPECT_THAT(run(600s), IsEmpty());
}

// All wait for what rank 1 does once an epoch, for a minute, in one call.
TEST_F(SilentJob, SaysNothingOfOneLongWait) {
    waiting_ = {{0, 1.0}, {1, 0.0}, {2, 1.0}};
    wakes_in_a_look_ = 0;
    EXPECT_THAT(run(600s), IsEmpty());
    EXPECT_EQ(readings_, 0);
}

TEST_F(SilentJob, SaysNothingOfRanksThatAreReadDifferently) {
    for (const bool python : {true, false}) {
        spoil_ = [=](RankStacks& stacks) {
            if (stacks.rank == 1 && python) stacks.python.clear();
            if (stacks.rank == 1 && !python) stacks.has_all_native = false;
        };
        EXPECT_THAT(run(600s), IsEmpty());
    }
    EXPECT_GT(readings_, 0);
}

TEST_F(SilentJob, SaysNothingOfRanksThatAreAlike) {
    waiting_ = {{0, 0.4}, {1, 0.45}, {2, 0.4}, {3, 0.5}};
    EXPECT_THAT(run(6h), IsEmpty());
    EXPECT_EQ(readings_, 0);
}

TEST_F(SilentJob, BeginsAnewWithOtherProcesses) {
    run(30s);
    waiting_.erase(2);
    in_collectives_.erase(2);
    EXPECT_THAT(run(20s), IsEmpty());
    const auto said = run(120s);
    ASSERT_THAT(said, SizeIs(1));
    EXPECT_THAT(said[0], HasSubstr("rank 1 slows down rank 0: "));
}

}  // namespace
}  // namespace ddp::launcher
