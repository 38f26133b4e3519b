// The timelines of ranks of other hosts, as bytes.
#include "launcher/hosts/messages/messages.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>

namespace ddp::launcher {
namespace {

using contract::Activity;

TimelineMessage a_timeline() {
    TimelineMessage message{.round = 5, .part = {.names = {"step", "barrier (a.cpp:9)"}}};
    message.part.groups = {{.id = ~std::uint32_t{0}, .size = 2, .on_gpu = true}};
    message.part.rank = {.rank = 3,
                         .pid = 4711,
                         .started = -500,
                         .ended = 9'000,
                         .end = "SIGKILL (signal 9)",
                         .has_joined = true,
                         .lost = 17};
    message.part.rank.items = {{.started = 100, .ended = 200, .number = ~std::uint64_t{0}},
                               {.started = 150,
                                .ended = 9'000,
                                .number = 8,
                                .name = 1,
                                .group = 0,
                                .what = Activity::collective,
                                .has_ended = false}};
    return message;
}

std::string refused(const std::function<void(TimelineMessage& message)>& change) {
    TimelineMessage message = a_timeline();
    change(message);
    try {
        decode_from_member(encode(message));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(TimelineMessage, CarriesEachField) {
    const TimelineMessage sent = a_timeline();
    const auto back = std::get<TimelineMessage>(decode_from_member(encode(sent)));
    EXPECT_EQ(back.round, 5);
    EXPECT_EQ(back.part.names, sent.part.names);
    ASSERT_EQ(back.part.groups.size(), 1U);
    EXPECT_EQ(back.part.groups[0].id, ~std::uint32_t{0});
    EXPECT_EQ(back.part.groups[0].size, 2);
    EXPECT_TRUE(back.part.groups[0].on_gpu);
    const RankTimeline& rank = back.part.rank;
    EXPECT_EQ(rank.rank, 3);
    EXPECT_EQ(rank.host, "") << "which the coordinator knows";
    EXPECT_EQ(rank.pid, 4711);
    EXPECT_EQ(rank.started, -500);
    EXPECT_EQ(rank.ended, 9'000);
    EXPECT_EQ(rank.end, "SIGKILL (signal 9)");
    EXPECT_TRUE(rank.has_joined);
    EXPECT_EQ(rank.lost, 17U);
    ASSERT_EQ(rank.items.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        const TimelineItem& item = rank.items[i];
        const TimelineItem& expected = sent.part.rank.items[i];
        EXPECT_EQ(item.started, expected.started);
        EXPECT_EQ(item.ended, expected.ended);
        EXPECT_EQ(item.number, expected.number);
        EXPECT_EQ(item.name, expected.name);
        EXPECT_EQ(item.what, expected.what);
        EXPECT_EQ(item.has_ended, expected.has_ended);
    }
}

TEST(TimelineMessage, IsRefusedWhereItMakesNoSense) {
    EXPECT_EQ(refused([](TimelineMessage&) {}), "");
    const std::string bytes = encode(a_timeline());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        EXPECT_THROW(decode_from_member(bytes.substr(0, cut)), UsageError) << cut;
    }
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.rank.items[0].name = 2; }), "");
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.rank.items[1].group = 1; }), "");
    EXPECT_EQ(refused([](TimelineMessage& m) { m.part.rank.items[0].group = 1; }), "")
        << "which is no collective's";
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.rank.items[0].started = -501; }), "");
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.rank.items[0].ended = 99; }), "");
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.rank.ended = -501; }), "");
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.rank.rank = -1; }), "");
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.names.resize(4097); }), "");
    EXPECT_NE(refused([](TimelineMessage& m) { m.part.groups.resize(257); }), "");
}

TEST(TimelineMessage, IsShownByAnotherClock) {
    TimelinePart part = a_timeline().part;
    shift_clock(part, std::chrono::nanoseconds(1'000));
    EXPECT_EQ(part.rank.started, 500);
    EXPECT_EQ(part.rank.ended, 10'000);
    EXPECT_EQ(part.rank.items[1].started, 1'150);
    EXPECT_EQ(part.rank.items[1].ended, 10'000);
}

}  // namespace
}  // namespace ddp::launcher
