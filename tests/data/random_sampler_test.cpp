// What holds for RandomSampler whatever torch gives; its golden orders are in
// golden_shards_test.cpp. And SequentialSampler.
#include <ddp/data_loader.hpp>
#include <ddp/error.hpp>
#include <ddp/random_sampler.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

using Indices = std::vector<std::size_t>;

std::map<std::size_t, int> counts(const Indices& indices) {
    std::map<std::size_t, int> seen;
    for (const std::size_t index : indices) ++seen[index];
    return seen;
}

}  // namespace

static_assert(ddp::Sampler<ddp::RandomSampler>);
static_assert(ddp::Sampler<ddp::SequentialSampler>);

TEST(RandomSampler, ShowsEachSampleBeforeOneComesAgain) {
    const ddp::RandomSampler sampler{10, {.seed = 3, .num_samples = 25}};
    ASSERT_EQ(sampler.size(), 25U);
    const Indices& all = sampler.indices();
    EXPECT_EQ(counts({all.begin(), all.begin() + 10}).size(), 10U);
    EXPECT_EQ(counts({all.begin() + 10, all.begin() + 20}).size(), 10U);
    EXPECT_EQ(counts({all.begin() + 20, all.end()}).size(), 5U);
    EXPECT_NE(Indices(all.begin(), all.begin() + 10), Indices(all.begin() + 10, all.begin() + 20));
}

TEST(RandomSampler, DrawsFromAllSamplesEachTimeWithReplacement) {
    const ddp::RandomSampler sampler{5, {.seed = 3, .replacement = true, .num_samples = 1000}};
    const auto seen = counts(sampler.indices());
    EXPECT_EQ(seen.size(), 5U);
    for (const auto& [index, times] : seen) EXPECT_GT(times, 100) << index;
}

TEST(RandomSampler, AddsTheEpochToTheSeed) {
    ddp::RandomSampler sampler{100, {.seed = 3}};
    const Indices first = sampler.indices();
    sampler.set_epoch(4);
    EXPECT_EQ(sampler.epoch(), 4);
    EXPECT_NE(sampler.indices(), first);
    EXPECT_EQ(sampler.indices(), (ddp::RandomSampler{100, {.seed = 7}}.indices()));
}

TEST(RandomSampler, GivesNothingForNoSamples) {
    EXPECT_TRUE(ddp::RandomSampler{0}.indices().empty());
    EXPECT_TRUE((ddp::RandomSampler{0, {.replacement = true}}.indices().empty()));
}

TEST(RandomSampler, RefusesToDrawFromNothing) {
    try {
        const ddp::RandomSampler sampler{0, {.num_samples = 3}};
        FAIL() << "no exception";
    } catch (const ddp::UsageError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("3 samples cannot be drawn from an empty"));
    }
}

TEST(RandomSampler, WarnsOfASecondPassWithoutSetEpoch) {
    const ddp::RandomSampler sampler{10};
    testing::internal::CaptureStderr();
    for (int pass = 0; pass < 3; ++pass)
        EXPECT_EQ(Indices(sampler.begin(), sampler.end()).size(), 10U);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, testing::HasSubstr("random sampler: a second pass over epoch 0"));
    EXPECT_EQ(std::ranges::count(log, '\n'), 1);
}

TEST(SequentialSampler, GivesTheSamplesInOrder) {
    const ddp::SequentialSampler sampler{4};
    EXPECT_EQ(sampler.size(), 4U);
    EXPECT_TRUE(std::ranges::equal(sampler, Indices{0, 1, 2, 3}));
    const std::vector<int> squares{0, 1, 4, 9};
    const ddp::DataLoader loader{squares, sampler, {.batch_size = 3}};
    EXPECT_EQ(*loader.begin(), (std::vector<int>{0, 1, 4}));
}
