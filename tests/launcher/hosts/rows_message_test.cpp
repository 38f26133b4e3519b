// The rows that hosts show of their ranks, as bytes.
#include "launcher/hosts/messages/messages.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

RowsMessage two_rows() {
    RowsMessage message{.round = 5, .question = ~std::uint64_t{0}};
    message.rows.push_back({.rank = 1});
    message.rows.push_back({.rank = 70'000,
                            .local_rank = 5,
                            .pid = 4711,
                            .state = "ended",
                            .ended = ExitStatus{.code = 3, .signal = 11, .core_dumped = true},
                            .phase = "in a group",
                            .is_at_checkpoint = true,
                            .progress = {.step = INT64_MAX,
                                         .steps_per_second = 12.345678,
                                         .bytes = ~std::uint64_t{0},
                                         .exposed = 7ns},
                            .call = "in barrier, operation 7 (a.cpp:9)",
                            .since_call = 90s,
                            .share_in_calls = 0.5,
                            .use = {40h, 31.5, std::uint64_t{1} << 40},
                            .waits_in = "read of /data",
                            .read_at = RankRow::Time(17h)});
    return message;
}

TEST(RowsMessage, CarriesEachField) {
    const RankRow sent = two_rows().rows[1];
    const auto message = std::get<RowsMessage>(decode_from_member(encode(two_rows())));
    EXPECT_EQ(message.round, 5);
    EXPECT_EQ(message.question, ~std::uint64_t{0});
    ASSERT_EQ(message.rows.size(), 2U);
    const RankRow& back = message.rows[1];
    EXPECT_EQ(back.host, "") << "which the coordinator knows";
    EXPECT_EQ(back.rank, sent.rank);
    EXPECT_EQ(back.local_rank, sent.local_rank);
    EXPECT_EQ(back.pid, sent.pid);
    EXPECT_EQ(back.state, sent.state);
    EXPECT_EQ(back.ended, sent.ended);
    EXPECT_EQ(back.phase, sent.phase);
    EXPECT_TRUE(back.is_at_checkpoint);
    EXPECT_EQ(back.progress.step, sent.progress.step);
    EXPECT_DOUBLE_EQ(back.progress.steps_per_second, sent.progress.steps_per_second);
    EXPECT_EQ(back.progress.bytes, sent.progress.bytes);
    EXPECT_EQ(back.progress.exposed, sent.progress.exposed);
    EXPECT_EQ(back.call, sent.call);
    EXPECT_EQ(back.since_call, sent.since_call);
    EXPECT_EQ(back.share_in_calls, sent.share_in_calls);
    EXPECT_EQ(back.use.cpu_time, sent.use.cpu_time);
    EXPECT_EQ(back.use.cpu_share, sent.use.cpu_share);
    EXPECT_EQ(back.use.resident_bytes, sent.use.resident_bytes);
    EXPECT_EQ(back.waits_in, sent.waits_in);
    EXPECT_EQ(back.read_at, sent.read_at);
    const RankRow& bare = message.rows[0];
    EXPECT_FALSE(bare.ended || bare.since_call || bare.share_in_calls || bare.use.cpu_time ||
                 bare.use.cpu_share || bare.use.resident_bytes);
}

// Of as many workers as a host may have, each with a lot to say.
TEST(RowsMessage, CarriesTheRowsThatFit) {
    RowsMessage message;
    message.rows.assign(4096, two_rows().rows[1]);
    for (RankRow& row : message.rows) row.call = "\033" + std::string(5000, 'x');
    const std::string bytes = encode(message);
    EXPECT_LT(bytes.size(), max_link_message_bytes);
    const auto back = std::get<RowsMessage>(decode_from_member(bytes));
    EXPECT_GT(back.rows.size(), 2000U);
    EXPECT_LT(back.rows.size(), 4096U);
    EXPECT_EQ(back.rows[0].call, "?" + std::string(1023, 'x'));
}

TEST(RowsMessage, IsRefusedWhereARowIsNone) {
    RowsMessage message = two_rows();
    message.rows.pop_back();
    const std::string bytes = encode(message);
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        EXPECT_THROW(decode_from_member(bytes.substr(0, cut)), UsageError) << cut;
    }
    for (const auto& change : {&RankRow::rank, &RankRow::local_rank}) {
        RowsMessage other = message;
        other.rows[0].*change = -1;
        EXPECT_THROW(decode_from_member(encode(other)), UsageError);
    }
}

// A worker may write over its page.
TEST(RowsMessage, CarriesWhateverAPageHolds) {
    RowsMessage message = two_rows();
    RankRow& row = message.rows[1];
    row.progress = {.step = INT64_MIN,
                    .steps_per_second = 1e9,
                    .bytes = UINT64_MAX,
                    .exposed = std::chrono::nanoseconds(INT64_MAX)};
    row.since_call = std::chrono::nanoseconds(INT64_MIN);
    row.share_in_calls = -1;
    row.use = {std::chrono::milliseconds(INT64_MAX), 1e300, UINT64_MAX};
    row.read_at = RankRow::Time::max();
    row.pid = 1;
    const auto back = std::get<RowsMessage>(decode_from_member(encode(message)));
    ASSERT_EQ(back.rows.size(), 2U);
    EXPECT_EQ(back.rows[1].progress.step, INT64_MIN);
    EXPECT_GT(back.rows[1].progress.exposed, 24h * 365 * 30);
    EXPECT_EQ(back.rows[1].since_call, 0ns);
    EXPECT_EQ(back.rows[1].share_in_calls, 0);
}

}  // namespace
}  // namespace ddp::launcher
