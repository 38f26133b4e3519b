// Pieces of a memory that go to other places of it: whatever the order, each arrives as it was.
#include "reducer/memory/relocation.hpp"

#include "support/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace ddp::reducer;
using Place = CopyStep::Place;

using Bytes = std::vector<unsigned char>;

// The steps, done; a copy within one place may not overlap itself, as cudaMemcpy's may not.
Bytes run(const Relocation& plan, Bytes memory) {
    Bytes scratch(plan.scratch_bytes), host(plan.host_bytes);
    const auto place = [&](Place which) -> Bytes& {
        return which == Place::memory ? memory : which == Place::scratch ? scratch : host;
    };
    for (const CopyStep& step : plan.steps) {
        Bytes& from = place(step.from);
        Bytes& to = place(step.to);
        EXPECT_LE(step.from_at + step.bytes, from.size());
        EXPECT_LE(step.to_at + step.bytes, to.size());
        const bool apart = step.from_at + step.bytes <= step.to_at ||
                           step.to_at + step.bytes <= step.from_at || step.from != step.to;
        EXPECT_TRUE(apart) << "a copy overlaps itself";
        if (::testing::Test::HasFailure()) return {};
        std::memcpy(to.data() + step.to_at, from.data() + step.from_at, step.bytes);
    }
    return memory;
}

void expect_moved(std::span<const Move> moves, std::size_t memory_bytes, std::size_t scratch) {
    Bytes before(memory_bytes);
    std::iota(before.begin(), before.end(), static_cast<unsigned char>(1));
    const Relocation plan = plan_relocation(moves, scratch);
    EXPECT_LE(plan.scratch_bytes, scratch);
    const Bytes after = run(plan, before);
    if (after.empty()) return;
    for (const Move& move : moves) {
        EXPECT_TRUE(std::equal(after.begin() + static_cast<std::ptrdiff_t>(move.to),
                               after.begin() + static_cast<std::ptrdiff_t>(move.to + move.bytes),
                               before.begin() + static_cast<std::ptrdiff_t>(move.from)))
            << move.from << " to " << move.to << ", " << move.bytes << " bytes";
    }
}

TEST(Relocation, DoesNothingForWhatStays) {
    const std::vector<Move> moves{{0, 0, 10}, {10, 10, 5}, {20, 3, 0}};
    EXPECT_TRUE(plan_relocation(moves, 1).steps.empty());
}

TEST(Relocation, ShiftsThroughScratchMemoryAndNeedsNoHosts) {
    for (const std::size_t scratch : {1U, 7U, 100U}) {
        const std::vector<Move> up{{0, 3, 40}, {40, 43, 20}}, down{{3, 0, 40}, {43, 40, 20}};
        expect_moved(up, 63, scratch);
        expect_moved(down, 63, scratch);
        EXPECT_EQ(plan_relocation(up, scratch).host_bytes, 0U);
    }
}

TEST(Relocation, BreaksACircleAtItsSmallestPiece) {
    const std::vector<Move> swap{{0, 2, 10}, {10, 0, 2}};
    expect_moved(swap, 12, 4);
    EXPECT_EQ(plan_relocation(swap, 4).host_bytes, 2U);
}

// Pieces in one order go into another, with gaps here and there.
TEST(Relocation, BringsPiecesIntoAnyOrder) {
    std::mt19937 random(ddp::store_test::random_seed());
    for (int round = 0; round < 2'000; ++round) {
        std::vector<Move> moves(random() % 12);
        std::size_t end = 0;
        const auto lay_out = [&](auto member) {
            std::size_t at = 0;
            for (Move& move : moves) {
                at += random() % 3 == 0 ? random() % 5 : 0;
                move.*member = at;
                at += move.bytes;
            }
            end = std::max(end, at);
        };
        for (Move& move : moves) move.bytes = random() % 20;
        lay_out(&Move::from);
        if (random() % 3 != 0) std::ranges::shuffle(moves, random);
        lay_out(&Move::to);
        expect_moved(moves, end, 1 + random() % 16);
        if (HasFailure()) return;
    }
}

}  // namespace
