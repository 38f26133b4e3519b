#include "launcher/inspect/run_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::DoubleEq;
using ::testing::Optional;

constexpr RankRow::Time start{1'000s};

contract::OperationRecord call(std::chrono::milliseconds from,
                               std::optional<std::chrono::milliseconds> to) {
    contract::OperationRecord one{.group = 7, .started = start + from};
    if (to) one.ended = start + *to;
    return one;
}

contract::RankRecord rank_with(std::vector<contract::OperationRecord> calls,
                               contract::GroupEnd end = contract::GroupEnd::none) {
    return {.groups = {{.id = 7, .size = 2, .end = end}}, .operations = std::move(calls)};
}

TEST(ShareInCalls, IsNotKnownBeforeTheFirst) {
    EXPECT_EQ(share_in_calls(rank_with({}), start), std::nullopt);
    EXPECT_EQ(share_in_calls(rank_with({call(0ms, 0ms)}), start), std::nullopt);
}

TEST(ShareInCalls, CountsWhatHasNotEnded) {
    EXPECT_THAT(share_in_calls(rank_with({call(0ms, 100ms)}), start + 400ms),
                Optional(DoubleEq(0.25)));
    EXPECT_THAT(share_in_calls(rank_with({call(0ms, 100ms), call(200ms, {})}), start + 400ms),
                Optional(DoubleEq(0.75)));
}

TEST(ShareInCalls, CountsEachMomentOnceWhereCallsOverlap) {
    EXPECT_THAT(
        share_in_calls(rank_with({call(0ms, 300ms), call(100ms, 200ms), call(200ms, 350ms)}),
                       start + 700ms),
        Optional(DoubleEq(0.5)));
}

TEST(ShareInCalls, DoesNotCountWhatHasFailed) {
    const auto failed = rank_with({call(0ms, 100ms), call(100ms, {})}, contract::GroupEnd::failed);
    EXPECT_THAT(share_in_calls(failed, start + 400ms), Optional(DoubleEq(0.25)));
}

TEST(RunView, IsJsonWhateverWorkersAndUsersWrite) {
    RunView view{.world_size = 1, .ranks = {{.call = "in barrier (\xff.cpp:1)"}}};
    view.hang = HangFacts{.kind = "missing", .ranks = {0}, .text = "\xfe\n"};
    const auto run = nlohmann::json::parse(
        to_json({.run_id = "id", .command = {"./train", "\xff"}}, view, std::nullopt));
    EXPECT_EQ(run["command"].size(), 2U);
    EXPECT_TRUE(run["exit_code"].is_null());
    EXPECT_EQ(run["hang"]["kind"], "missing");
}

}  // namespace
}  // namespace ddp::launcher
