// The bucket plan as a table: sizes in, buckets out.
#include "reducer/bucket_plan.hpp"

#include "support/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::reducer;

std::vector<std::vector<std::size_t>> parameters_of(const std::vector<BucketSpec>& plan) {
    std::vector<std::vector<std::size_t>> result;
    for (const BucketSpec& bucket : plan) {
        auto& parameters = result.emplace_back();
        for (const BucketSlice& slice : bucket.slices) parameters.push_back(slice.parameter);
    }
    return result;
}

std::vector<BucketSpec> plan_reversed(const std::vector<GradientSpec>& gradients, BucketCaps caps) {
    return plan_buckets(gradients, reverse_order(gradients.size()), caps);
}

GradientSpec floats(std::size_t elements) { return {elements, DType::float32, {}}; }

TEST(BucketPlan, GoesFromTheLastParameterToTheFirst) {
    const std::vector<GradientSpec> gradients{floats(16), floats(16), floats(16)};
    EXPECT_EQ(parameters_of(plan_reversed(gradients, {1 << 20, 1 << 20})),
              (std::vector<std::vector<std::size_t>>{{2, 1, 0}}));
}

TEST(BucketPlan, ClosesTheFirstBucketEarlierThanTheOthers) {
    const std::vector<GradientSpec> gradients(7, floats(16));  // 64 bytes each
    EXPECT_EQ(parameters_of(plan_reversed(gradients, {64, 192})),
              (std::vector<std::vector<std::size_t>>{{6}, {5, 4, 3}, {2, 1, 0}}));
}

TEST(BucketPlan, MayOvershootByOneGradient) {
    const std::vector<GradientSpec> gradients{floats(16), floats(1000), floats(16)};
    EXPECT_EQ(parameters_of(plan_reversed(gradients, {128, 128})),
              (std::vector<std::vector<std::size_t>>{{2, 1}, {0}}));
}

TEST(BucketPlan, KeepsDtypesAndDevicesApart) {
    const std::vector<GradientSpec> gradients{floats(16),
                                              {16, DType::float64, {}},
                                              floats(16),
                                              {16, DType::float32, {DeviceType::cuda, 1}}};
    EXPECT_EQ(parameters_of(plan_reversed(gradients, {1 << 20, 1 << 20})),
              (std::vector<std::vector<std::size_t>>{{3}, {2, 0}, {1}}));
}

TEST(BucketPlan, BeginsEachSliceOnACacheLine) {
    const std::vector<GradientSpec> gradients{floats(3), floats(17), {1, DType::uint8, {}}};
    const auto plan = plan_reversed(gradients, {1 << 20, 1 << 20});
    ASSERT_EQ(plan.size(), 2U);
    EXPECT_EQ(plan[0].elements, 64U);
    ASSERT_EQ(plan[1].slices.size(), 2U);
    EXPECT_EQ(plan[1].slices[1].offset, 32U);
    EXPECT_EQ(plan[1].elements, 48U);
}

TEST(BucketPlan, HoldsEachParameterOnceHoweverTheCaps) {
    for (std::size_t cap = 1; cap < 5000; cap = cap * 3 + 1) {
        std::vector<GradientSpec> gradients;
        for (std::size_t i = 0; i < 60; ++i) {
            gradients.push_back({(i * 37) % 50, i % 3 == 0 ? DType::int64 : DType::float32, {}});
        }
        std::vector<int> seen(gradients.size());
        for (const BucketSpec& bucket : plan_reversed(gradients, {cap, 2 * cap})) {
            EXPECT_FALSE(bucket.slices.empty());
            for (const BucketSlice& slice : bucket.slices) {
                ++seen[slice.parameter];
                EXPECT_LE(slice.offset + slice.elements, bucket.elements);
            }
        }
        EXPECT_EQ(seen, std::vector<int>(gradients.size(), 1)) << "cap " << cap;
    }
}

TEST(BucketPlan, FollowsTheOrderOfArrival) {
    const std::vector<GradientSpec> gradients(4, floats(16));
    EXPECT_EQ(
        parameters_of(plan_buckets(gradients, std::vector<std::size_t>{1, 3, 0, 2}, {64, 128})),
        (std::vector<std::vector<std::size_t>>{{1}, {3, 0}, {2}}));
}

TEST(BucketPlan, IsEmptyForNoParameters) { EXPECT_TRUE(plan_reversed({}, {1, 1}).empty()); }

// 256 bytes a slice; a whole number of 128 elements and of 16 bytes a rank at the end.
TEST(BucketPlan, PadsAsNcclCutsOnAGpu) {
    const Device gpu{DeviceType::cuda, 1};
    const std::vector<GradientSpec> gradients{{3, DType::float32, gpu}, {65, DType::float32, gpu}};
    const std::vector<std::size_t> order = reverse_order(2);
    const auto plan = plan_buckets(gradients, order, {1 << 20, 1 << 20}, 3);
    ASSERT_EQ(plan.size(), 1U);
    EXPECT_EQ(plan[0].slices[1].offset, 128U);
    EXPECT_EQ(plan[0].elements, 384U);  // of 192: the least multiple of 128 and 12
    const std::vector<GradientSpec> bytes{{1, DType::uint8, gpu}};
    EXPECT_EQ(plan_buckets(bytes, reverse_order(1), {1, 1}, 8)[0].elements, 256U);
}

// An arena of so many bytes is large enough for each order.
TEST(BucketPlan, TakesAtMostWhatItSays) {
    std::mt19937 random(ddp::store_test::random_seed());
    constexpr std::size_t alignment = 512;
    for (int round = 0; round < 500; ++round) {
        const Device gpu{DeviceType::cuda, 0};
        std::vector<GradientSpec> gradients(random() % 30);
        for (GradientSpec& gradient : gradients) {
            const DType dtype = random() % 3 == 0 ? DType::float16 : DType::float32;
            gradient = {random() % 4 == 0 ? random() % 40'000 : random() % 300, dtype, gpu};
        }
        const BucketCaps caps{1 + random() % 20'000, 1 + random() % 100'000};
        const std::size_t ranks = 1 + random() % 9;
        const std::size_t most = most_bytes_of_plans(gradients, caps, ranks, alignment);
        std::vector<std::size_t> order = reverse_order(gradients.size());
        for (int other = 0; other < 5; ++other) {
            std::size_t bytes = 0;
            for (const BucketSpec& bucket : plan_buckets(gradients, order, caps, ranks)) {
                bytes += bucket.elements * size_of(bucket.dtype);
                bytes = (bytes + alignment - 1) / alignment * alignment;
            }
            ASSERT_LE(bytes, most) << "round " << round;
            std::ranges::shuffle(order, random);
        }
    }
}

}  // namespace
