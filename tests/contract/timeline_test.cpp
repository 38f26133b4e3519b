// The ring of what a rank did: written by recorders, read by the agent, whatever stands in it.
#include "contract/timeline.hpp"

#include "contract/control_page.hpp"
#include "contract/launch_recorder.hpp"
#include "contract/operation_recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace ddp::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t entries = 8;

class TimelineOfARank : public ::testing::Test {
protected:
    ControlRegion region_ = ControlRegion::create(2, entries);
    Timeline timeline_ = region_.timeline(1);
    ControlPage& page_ = region_.page(1);
};

TEST(Timeline, OfARegionWithoutRingsIsOff) {
    const ControlRegion region = ControlRegion::create(1);
    EXPECT_FALSE(region.timeline(0).is_on());
    EXPECT_THAT(region.timeline(0).read().kept, IsEmpty());
    const TimelineScope nothing(region.timeline(0), Activity::checkpoint);
}

TEST_F(TimelineOfARank, KeepsCollectivesWithTheirExactTimes) {
    OperationRecorder recorder(page_, 7, 2, timeline_);
    const std::int64_t before = Timeline::now_ns();
    recorder.started({.kind = Collective::all_reduce, .dtype = DType::float32, .elements = 16}, {},
                     1, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    recorder.ended();
    const auto contents = timeline_.read();
    ASSERT_THAT(contents.kept, SizeIs(1));
    const TimedActivity& one = contents.kept[0];
    EXPECT_EQ(one.group, 7U);
    EXPECT_EQ(one.number, 1U);
    EXPECT_GE(one.started_ns, before);
    EXPECT_GE(one.ended_ns - one.started_ns, 2'000'000);
    EXPECT_LE(one.ended_ns, Timeline::now_ns());
    EXPECT_EQ(describe(one, page_), "all_reduce of 16 float32 (sum)");
    EXPECT_THAT(region_.timeline(0).read().kept, IsEmpty()) << "a ring is a rank's own";
}

TEST_F(TimelineOfARank, KeepsCollectivesThatHaveFailedAsSuch) {
    OperationRecorder recorder(page_, 7, 2, timeline_);
    recorder.started({.uneven = true}, {}, 1, {});
    EXPECT_THAT(timeline_.read().kept, IsEmpty()) << "it has not ended";
    recorder.failed();
    const auto kept = timeline_.read().kept;
    ASSERT_THAT(kept, SizeIs(1));
    EXPECT_TRUE(kept[0].failed);
    EXPECT_TRUE(kept[0].call.uneven);
}

// Also of more than the page remembers, in whatever order they end.
TEST_F(TimelineOfARank, KeepsWhatIsLaunchedOnAGpu) {
    const auto region =
        std::make_shared<ControlRegion>(ControlRegion::create(1, 2 * recorded_operations));
    LaunchRecorder recorder(region, 7, 2);
    std::vector<LaunchRecorder::Launch> launches;
    for (std::size_t i = 0; i < recorded_operations + 9; ++i) {
        launches.push_back(
            recorder.launched({}, CallSite::here(), std::chrono::steady_clock::now()));
    }
    const auto aborted = launches.back();
    launches.pop_back();
    for (const auto& launch : launches) recorder.ended(launch);
    recorder.aborted(aborted);
    launches.push_back(aborted);
    const auto kept = region->timeline(0).read().kept;
    ASSERT_THAT(kept, SizeIs(launches.size()));
    for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_EQ(kept[i].number, i + 1);
        EXPECT_LE(kept[i].started_ns, kept[i].ended_ns);
        EXPECT_EQ(kept[i].failed, i + 1 == kept.size());
    }
}

TEST_F(TimelineOfARank, NamesTheSourceLineOfAWait) {
    TransferRecorder recorder(page_, 7, timeline_);
    const CallSite here = CallSite::here();
    recorder.waits({.sends = true, .peer = 3, .bytes = 64}, here);
    recorder.goes_on();
    recorder.goes_on();
    const auto contents = timeline_.read();
    ASSERT_THAT(contents.kept, SizeIs(1));
    EXPECT_EQ(describe(contents.kept[0], page_),
              "send of 64 bytes to rank 3 (timeline_test.cpp:" + std::to_string(here.line()) + ")");
}

TEST_F(TimelineOfARank, HasAStepFromEachProgressToTheNext) {
    for (std::int64_t step = 10; step < 13; ++step) timeline_.end_step(step);
    const auto contents = timeline_.read();
    ASSERT_THAT(contents.kept,
                ElementsAre(Field(&TimedActivity::number, 11), Field(&TimedActivity::number, 12)));
    EXPECT_EQ(contents.kept[0].ended_ns, contents.kept[1].started_ns);
    EXPECT_EQ(describe(contents.kept[0], page_), "step");
}

// A worker that runs one program after the other.
TEST_F(TimelineOfARank, BeginsTheFirstStepOfAProgramWithItsFirstProgress) {
    timeline_.end_step(1);
    timeline_.begin_program();
    timeline_.end_step(1);
    EXPECT_THAT(timeline_.read().kept, IsEmpty());
    timeline_.end_step(2);
    EXPECT_THAT(timeline_.read().kept, SizeIs(1));
}

TEST_F(TimelineOfARank, NamesTheBackwardsOfAReducerAlike) {
    const auto name_of = [&](std::uint32_t backward) {
        const std::uint32_t source = encode({.reducer = 2, .backward = backward, .bucket = 4});
        return describe(TimedActivity{.call = {.elements = 8, .source = source}}, page_);
    };
    EXPECT_EQ(name_of(3), name_of(17));
    EXPECT_THAT(
        describe(
            TimedActivity{.call = {.kind = Collective::all_reduce,
                                   .dtype = DType::float32,
                                   .elements = 8,
                                   .source = encode({.reducer = 2, .backward = 5, .bucket = 4})}},
            page_),
        ::testing::EndsWith(", bucket 3 of reducer 2"));
}

TEST_F(TimelineOfARank, HasCheckpointsAsLongAsTheyLast) {
    {
        const CheckpointScope scope(page_, timeline_);
        EXPECT_THAT(timeline_.read().kept, IsEmpty());
    }
    EXPECT_THAT(timeline_.read().kept,
                ElementsAre(Field(&TimedActivity::what, Activity::checkpoint)));
}

TEST_F(TimelineOfARank, KeepsTheLastThatFit) {
    for (std::uint64_t number = 1; number <= 20; ++number) timeline_.add({.number = number});
    const auto contents = timeline_.read();
    EXPECT_EQ(contents.lost, 20U - entries);
    ASSERT_THAT(contents.kept, SizeIs(entries));
    for (std::size_t i = 0; i < entries; ++i) EXPECT_EQ(contents.kept[i].number, 13 + i);
}

TEST_F(TimelineOfARank, IsOneForAllItsThreads) {
    constexpr std::uint64_t each = 1000;
    const ControlRegion large = ControlRegion::create(1, 2 * each);
    {
        const auto add = [&](std::uint32_t group) {
            for (std::uint64_t i = 0; i < each; ++i) {
                large.timeline(0).add({.number = i, .group = group});
            }
        };
        std::jthread first(add, 1);
        std::jthread second(add, 2);
    }
    std::vector<std::uint64_t> next(3);
    for (const TimedActivity& one : large.timeline(0).read().kept) {
        EXPECT_EQ(one.number, next[one.group]++);
    }
    EXPECT_THAT(next, ElementsAre(0, each, each));
}

// Any worker of the job may write anything there.
TEST_F(TimelineOfARank, IsReadWhateverStandsInIt) {
    std::mt19937_64 random(5);
    auto& head = *reinterpret_cast<TimelineHead*>(&region_.page(0) + 2);
    for (int round = 0; round < 2000; ++round) {
        auto* const ring = reinterpret_cast<unsigned char*>(&head);
        for (std::size_t i = 0; i < 2 * Timeline::bytes_for(entries); ++i) {
            if (random() % 4 == 0) ring[i] = static_cast<unsigned char>(random());
        }
        for (const int rank : {0, 1}) {
            const auto contents = region_.timeline(rank).read();
            EXPECT_LE(contents.kept.size(), entries);
            EXPECT_LT(contents.lost, std::uint64_t{1} << 53) << "a script's number";
            for (const TimedActivity& one : contents.kept) {
                EXPECT_LE(0, one.started_ns);
                EXPECT_LE(one.started_ns, one.ended_ns);
                EXPECT_FALSE(describe(one, page_).empty());
            }
        }
    }
    timeline_.add({});
    timeline_.end_step(1);
}

}  // namespace
}  // namespace ddp::contract
