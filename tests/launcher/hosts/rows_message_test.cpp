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
                            .cpu_time = 40h,
                            .cpu_share = 31.5,
                            .resident_bytes = std::uint64_t{1} << 40,
                            .waits_in = "read of /data"});
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
    EXPECT_EQ(back.cpu_time, sent.cpu_time);
    EXPECT_EQ(back.cpu_share, sent.cpu_share);
    EXPECT_EQ(back.resident_bytes, sent.resident_bytes);
    EXPECT_EQ(back.waits_in, sent.waits_in);
    const RankRow& bare = message.rows[0];
    EXPECT_FALSE(bare.ended || bare.since_call || bare.share_in_calls || bare.cpu_time ||
                 bare.cpu_share || bare.resident_bytes);
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
    RowsMessage late = message;
    late.rows[0].progress.exposed = std::chrono::nanoseconds(INT64_MAX);
    EXPECT_THROW(decode_from_member(encode(late)), UsageError);
}

}  // namespace
}  // namespace ddp::launcher
