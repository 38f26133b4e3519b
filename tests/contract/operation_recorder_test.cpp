#include "contract/operation_recorder.hpp"

#include "contract/launch_recorder.hpp"
#include "contract/rank_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ddp::contract {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using Clock = std::chrono::steady_clock;

constexpr CallSignature sum_of_128{
    .kind = Collective::all_reduce, .dtype = DType::float32, .elements = 128};

class OperationRecorderTest : public ::testing::Test {
protected:
    RankRecord read() const { return read_page(*page); }
    static void call(OperationRecorder& recorder, std::uint64_t sequence,
                     const CallSite& site = {"train.cpp", 42}) {
        recorder.started(sum_of_128, site, sequence, Clock::now());
        recorder.ended();
    }
    std::unique_ptr<ControlPage> page = std::make_unique<ControlPage>();
};

TEST_F(OperationRecorderTest, SaysWhatARankIsInAndWhatItHasDone) {
    const auto before = Clock::now();
    take_page(*page);
    OperationRecorder recorder(*page, 5, 3);
    CallSignature call{.kind = Collective::broadcast,
                       .dtype = DType::int64,
                       .root = 2,
                       .elements = 9,
                       .uneven = true,
                       .source = encode({.reducer = 1, .backward = 3, .bucket = 2})};
    recorder.started(call, {"/home/user/src/train.cpp", 42}, 1, before);
    RankRecord record = read();
    EXPECT_EQ(record.pid, ::getpid());
    EXPECT_LT(record.joined - before + 20ms, 1min);
    ASSERT_EQ(record.groups.size(), 1U);
    EXPECT_EQ(record.groups[0].size, 3);
    EXPECT_TRUE(record.groups[0].is_waiting());
    ASSERT_EQ(record.operations.size(), 1U);
    EXPECT_EQ(record.operations[0].call, call);
    EXPECT_EQ(record.operations[0].file, "train.cpp");
    EXPECT_EQ(record.operations[0].line, 42U);
    EXPECT_EQ(record.operations[0].started, before);
    EXPECT_FALSE(record.operations[0].ended);

    recorder.ended();
    record = read();
    EXPECT_FALSE(record.groups[0].is_waiting());
    ASSERT_TRUE(record.operations[0].ended);
    EXPECT_GE(*record.operations[0].ended + 20ms, before);
    EXPECT_LE(*record.operations[0].ended, Clock::now());
}

TEST_F(OperationRecorderTest, KeepsTheLastOfThemInTheirOrder) {
    OperationRecorder recorder(*page, 5, 3);
    for (std::uint64_t i = 1; i <= 100; ++i) call(recorder, i);
    const RankRecord record = read();
    ASSERT_EQ(record.operations.size(), recorded_operations);
    EXPECT_EQ(record.operations.front().sequence, 37U);
    EXPECT_EQ(record.operations.back().sequence, 100U);
    EXPECT_EQ(record.find_operation(5, 36), nullptr);
    EXPECT_EQ(record.find_operation(5, 50)->serial, 50U);
    EXPECT_EQ(record.find_operation(6, 50), nullptr);
}

TEST_F(OperationRecorderTest, TellsGroupsApartAndUsesTheEntriesOfThoseThatWereLeft) {
    std::vector<std::unique_ptr<OperationRecorder>> groups;
    for (std::uint32_t id = 1; id <= recorded_groups; ++id) {
        groups.push_back(std::make_unique<OperationRecorder>(*page, id, 2));
    }
    OperationRecorder without(*page, 99, 2);
    call(without, 1);
    EXPECT_EQ(read().groups.size(), recorded_groups);
    EXPECT_EQ(read().find_group(99), nullptr) << "there is no room";
    EXPECT_NE(read().find_operation(0, 1), nullptr);
    EXPECT_FALSE(read().waits_unrecorded);
    without.started(sum_of_128, {}, 2, Clock::now());
    EXPECT_TRUE(read().waits_unrecorded);
    without.failed();
    EXPECT_FALSE(read().waits_unrecorded);
    groups[3].reset();
    EXPECT_EQ(read().find_group(4)->end, GroupEnd::left);
    const OperationRecorder late(*page, 100, 2);
    EXPECT_EQ(read().find_group(4), nullptr);
    EXPECT_EQ(read().find_group(100)->end, GroupEnd::none);
}

TEST_F(OperationRecorderTest, KeepsWhatHasFailedAsTheOneThatTheRankWasIn) {
    OperationRecorder recorder(*page, 5, 3);
    recorder.started(sum_of_128, {"train.cpp", 42}, 1, Clock::now());
    recorder.failed();
    EXPECT_EQ(read().groups[0].end, GroupEnd::failed);
    EXPECT_FALSE(read().groups[0].is_waiting());
    EXPECT_FALSE(read().operations[0].ended);
}

// Of a GPU: many are under way, and those that a hang holds up stay though others are launched.
class LaunchRecorderTest : public ::testing::Test {
protected:
    LaunchRecorder::Launch launch(std::uint32_t line = 42) {
        return recorder.launched(sum_of_128, {"train.cpp", line}, Clock::now());
    }
    RankRecord read() const { return read_page(region->own_page()); }

    std::shared_ptr<ControlRegion> region =
        std::make_shared<ControlRegion>(ControlRegion::create(1));
    LaunchRecorder recorder{region, 5, 3};
};

TEST_F(LaunchRecorderTest, CountsWhatIsUnderWayAndWhatHasEnded) {
    const auto first = launch(42);
    const auto second = launch(43);
    const auto third = launch(44);
    ASSERT_EQ(read().groups.size(), 1U);
    EXPECT_TRUE(read().groups[0].on_gpu);
    EXPECT_EQ(read().groups[0].started, 3U);
    EXPECT_EQ(read().groups[0].waits_in(), 1U);
    EXPECT_EQ(read().find_operation(5, 1)->line, 42U);
    recorder.ended(second);
    recorder.ended(first);  // whose end was seen later
    EXPECT_EQ(read().groups[0].waits_in(), 3U);
    EXPECT_TRUE(read().groups[0].is_waiting());
    EXPECT_TRUE(read().find_operation(5, 1)->ended);
    EXPECT_FALSE(read().find_operation(5, 3)->ended);
    recorder.ended(third);
    EXPECT_FALSE(read().groups[0].is_waiting());
    recorder.end(GroupEnd::left);
    EXPECT_EQ(read().groups[0].end, GroupEnd::left);
}

TEST_F(LaunchRecorderTest, KeepsTheOldestThatIsUnderWay) {
    const auto since = Clock::now() - 1s;
    auto oldest = recorder.launched(sum_of_128, {"train.cpp", 7}, since);
    recorder.keep(oldest, sum_of_128, {"train.cpp", 7}, since);
    EXPECT_EQ(read().operations.size(), 1U) << "it is still there";
    for (std::size_t i = 0; i < recorded_operations; ++i) launch();
    EXPECT_EQ(read().find_operation(5, 1), nullptr);
    recorder.keep(oldest, sum_of_128, {"train.cpp", 7}, since);
    ASSERT_NE(read().find_operation(5, 1), nullptr);
    EXPECT_EQ(read().find_operation(5, 1)->line, 7U);
    EXPECT_EQ(read().find_operation(5, 1)->started, since);
    EXPECT_EQ(read().groups[0].waits_in(), 1U);
    recorder.ended(oldest);
    EXPECT_TRUE(read().find_operation(5, 1)->ended);
    EXPECT_EQ(read().groups[0].waits_in(), 2U);
}

TEST_F(LaunchRecorderTest, SaysThatSomethingElseIsUnderWay) {
    const auto transfer = recorder.launched_transfer();
    EXPECT_TRUE(read().waits_unrecorded);
    recorder.ended(transfer);
    EXPECT_FALSE(read().waits_unrecorded);
    recorder.aborted(recorder.launched_transfer());
    EXPECT_FALSE(read().waits_unrecorded);

    LaunchRecorder without(region, 0, 3);
    auto one = without.launched(sum_of_128, {}, Clock::now());
    without.keep(one, sum_of_128, {}, Clock::now());
    EXPECT_TRUE(read().waits_unrecorded);
    without.ended(one);
    EXPECT_FALSE(read().waits_unrecorded);
    EXPECT_TRUE(read().operations.empty());
}

TEST_F(LaunchRecorderTest, WritesNothingToTheEntryOfALaterGroup) {
    const auto late = launch();
    recorder.end(GroupEnd::left);
    std::vector<std::unique_ptr<LaunchRecorder>> others;
    for (std::uint32_t id = 10; id < 10 + recorded_groups; ++id) {
        others.push_back(std::make_unique<LaunchRecorder>(region, id, 3));
    }
    EXPECT_EQ(read().find_group(5), nullptr) << "its entry is another's";
    recorder.ended(late);
    for (const GroupRecord& group : read().groups) EXPECT_EQ(group.ended, 0U);
    others.clear();
    for (const GroupRecord& group : read().groups) EXPECT_EQ(group.end, GroupEnd::left);
}

TEST_F(OperationRecorderTest, SaysWhichTransferARankWaitsIn) {
    TransferRecorder transfers(*page, 5);
    transfers.waits({.sends = true, .peer = 1, .bytes = 9}, {"a.cpp", 3});
    transfers.goes_on();
    const OperationRecorder other(*page, 4, 3);
    const OperationRecorder recorder(*page, 5, 3);
    EXPECT_FALSE(read().find_group(5)->transfer);
    transfers.waits({.sends = false, .peer = 1, .bytes = 1024}, {"dir/train.cpp", 42});
    transfers.waits({.sends = true, .peer = 2, .bytes = 3}, {"a.cpp", 1});  // the first one counts
    EXPECT_FALSE(read().find_group(4)->transfer);
    const auto transfer = read().find_group(5)->transfer;
    ASSERT_TRUE(transfer);
    EXPECT_EQ(describe(*transfer), "recv of 1024 bytes from rank 1 (train.cpp:42)");
    EXPECT_LE(transfer->since, Clock::now());
    transfers.goes_on();
    EXPECT_FALSE(read().find_group(5)->transfer);
    transfers.waits({.sends = true, .peer = 2, .bytes = 3}, {});
    EXPECT_EQ(describe(*read().find_group(5)->transfer), "send of 3 bytes to rank 2");
}

TEST_F(OperationRecorderTest, KnowsNamesOfFilesUntilThereIsNoRoom) {
    OperationRecorder recorder(*page, 5, 3);
    std::vector<std::string> names;
    for (int i = 0; i < 500; ++i) names.push_back("/a/folder/source" + std::to_string(i) + ".cpp");
    int known = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
        call(recorder, i + 1, {names[i].c_str(), 7});
        const OperationRecord last = read().operations.back();
        EXPECT_EQ(last.line, 7U);
        if (last.file.empty()) continue;
        EXPECT_EQ(last.file, names[i].substr(10));
        ++known;
    }
    EXPECT_GT(known, 100);
    EXPECT_LT(known, 200);
    call(recorder, 501, {names[0].c_str(), 8});
    EXPECT_EQ(read().operations.back().file, "source0.cpp");
    const std::string same = names[1];  // at another address
    call(recorder, 502, {same.c_str(), 8});
    EXPECT_EQ(read().operations.back().file, "source1.cpp");
}

TEST_F(OperationRecorderTest, KeepsTheEndOfALongPath) {
    OperationRecorder recorder(*page, 5, 3);
    const std::string path = "/" + std::string(300, 'x') + "/train.cpp";
    call(recorder, 1, {path.c_str(), 7});
    EXPECT_EQ(read().operations.back().file, "train.cpp");
}

TEST_F(OperationRecorderTest, TheNextProgramOfARankBeginsAnew) {
    page->pid = 1;  // another's
    {
        OperationRecorder recorder(*page, 5, 3);
        recorder.started(sum_of_128, {}, 1, Clock::now());
    }
    take_page(*page);
    EXPECT_TRUE(read().groups.empty());
    EXPECT_TRUE(read().operations.empty());
    const OperationRecorder recorder(*page, 5, 3);
    take_page(*page);
    EXPECT_EQ(read().groups.size(), 1U) << "its own are kept";
}

TEST_F(OperationRecorderTest, SaysThatARankIsAtACheckpoint) {
    EXPECT_FALSE(read().is_at_checkpoint);
    {
        const CheckpointScope scope(*page);
        EXPECT_TRUE(read().is_at_checkpoint);
        page->pid = 1;  // another program's, which has been killed within
    }
    EXPECT_FALSE(read().is_at_checkpoint);
    page->checkpoints = 1;
    take_page(*page);
    EXPECT_FALSE(read().is_at_checkpoint);
}

TEST_F(OperationRecorderTest, AForkedCopyOfTheRankLeavesNothing) {
    take_page(*page);
    {
        const OperationRecorder recorder(*page, 5, 3);
        page->pid = ::getpid() + 1;  // as the copy sees it
    }
    EXPECT_EQ(read().groups[0].end, GroupEnd::none);
}

TEST_F(OperationRecorderTest, HasNoGroupsOfOneRankNorOfWorldsThatNobodyKnows) {
    const OperationRecorder one(*page, 5, 1);
    const OperationRecorder unknown(*page, 0, 2);
    EXPECT_TRUE(read().groups.empty());
}

TEST(GroupId, IsTheSameForTheSameNames) {
    EXPECT_EQ(group_id(0, "group_0"), group_id(0, "group_0"));
    EXPECT_NE(group_id(0, "group_0"), group_id(0, "group_1"));
    EXPECT_NE(group_id(1, "group_0"), group_id(2, "group_0"));
    EXPECT_NE(group_id(0, ""), 0U);
}

TEST_F(OperationRecorderTest, IsReadWhileItIsWritten) {
    std::atomic<bool> ends{false};
    std::thread writer([&] {
        OperationRecorder recorder(*page, 5, 3);
        for (std::uint64_t i = 1; !ends; ++i) {
            CallSignature call = sum_of_128;
            call.elements = i;
            recorder.started(call, {"train.cpp", static_cast<std::uint32_t>(i)}, i, Clock::now());
            recorder.ended();
        }
    });
    std::uint64_t checked = 0;
    for (int look = 0; look < 2'000 || checked < 1'000; ++look) {
        for (const OperationRecord& operation : read().operations) {
            ++checked;
            ASSERT_EQ(operation.call.elements, operation.sequence);
            ASSERT_EQ(operation.line, static_cast<std::uint32_t>(operation.sequence));
            ASSERT_EQ(operation.serial, operation.sequence);
        }
    }
    ends = true;
    writer.join();
}

TEST(RankRecord, LeavesOutWhatMakesNoSense) {
    std::mt19937_64 random(7);
    const auto page = std::make_unique<ControlPage>();
    for (int i = 0; i < 2'000; ++i) {
        auto* const bytes = reinterpret_cast<char*>(page.get());
        for (int n = 0; n < 200; ++n) {
            bytes[random() % sizeof *page] = static_cast<char>(random());
        }
        const RankRecord record = read_page(*page);
        EXPECT_LE(record.groups.size(), recorded_groups);
        EXPECT_LE(record.operations.size(), recorded_operations);
        for (const GroupRecord& group : record.groups) EXPECT_GT(group.size, 0);
        for (const OperationRecord& operation : record.operations) {
            EXPECT_LE(operation.file.size(), 128U);
            EXPECT_LT(describe(operation).size(), 400U);
        }
        for (std::uint64_t serial = 1; serial < 64; ++serial) {
            OperationRecorder(*page, 5, 3).started(sum_of_128, {"x.cpp", 1}, serial, Clock::now());
        }
    }
}

TEST(CallSignature, IsDescribed) {
    EXPECT_EQ(describe(sum_of_128), "all_reduce of 128 float32 (sum)");
    CallSignature call = sum_of_128;
    call.source = encode({.reducer = 1, .backward = 17, .bucket = 4});
    EXPECT_EQ(describe(call),
              "all_reduce of 128 float32 (sum), bucket 3 of backward 17 of reducer 1");
    CallSignature later = call;
    later.source = encode({.reducer = 1, .backward = 18, .bucket = 4});
    EXPECT_EQ(without_backward(call.source), without_backward(later.source));
    EXPECT_EQ(without_backward(0), 0U);
    const OperationRecord known{.sequence = 57, .call = sum_of_128, .file = "a.cpp", .line = 3};
    EXPECT_EQ(describe(known), "all_reduce of 128 float32 (sum), operation 57 (a.cpp:3)");
    EXPECT_EQ(describe(OperationRecord{.sequence = 57, .call = sum_of_128}),
              "all_reduce of 128 float32 (sum), operation 57");
}

}  // namespace
}  // namespace ddp::contract
