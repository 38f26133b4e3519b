// What holds for every shard, whatever torch gives: each sample once, equal lengths, epochs that
// differ. The golden shards are in golden_shards_test.cpp.
#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

namespace {

using Indices = std::vector<std::size_t>;

// How often each sample is seen by all ranks together.
std::vector<int> counts(std::size_t n, std::size_t world,
                        const ddp::DistributedSamplerOptions& options) {
    std::vector<int> seen(n, 0);
    for (std::size_t rank = 0; rank < world; ++rank) {
        const ddp::DistributedSampler sampler{n, {rank, world}, options};
        for (const std::size_t index : sampler) ++seen.at(index);
    }
    return seen;
}

// Steps of `batch` samples a rank; returns what all ranks got in them.
Indices some_steps(std::size_t samples, std::size_t ranks, std::size_t& finished, std::size_t batch,
                   std::size_t steps) {
    Indices got;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        ddp::DistributedSampler sampler{samples, {rank, ranks}, {.seed = 5, .drop_last = true}};
        sampler.set_epoch(3, finished);
        EXPECT_GE(sampler.size(), batch * steps);
        got.insert(got.end(), sampler.begin(),
                   sampler.begin() + static_cast<std::ptrdiff_t>(batch * steps));
    }
    finished += ranks * batch * steps;
    return got;
}

}  // namespace

TEST(DistributedSampler, ShowsEachSampleOnceWhenTheRanksDivideTheData) {
    for (const std::size_t world : {1U, 2U, 3U, 4U, 6U}) {
        EXPECT_EQ(counts(36, world, {.seed = 5}), std::vector<int>(36, 1)) << world << " ranks";
    }
}

TEST(DistributedSampler, RepeatsTheHeadWithoutDropLast) {
    const auto seen = counts(10, 4, {.seed = 5});
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 8);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 2), 2);
}

TEST(DistributedSampler, LeavesOutTheTailWithDropLast) {
    const auto seen = counts(10, 4, {.seed = 5, .drop_last = true});
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 8);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 2);
}

TEST(DistributedSampler, TakesEveryCountthSampleInOrderWithoutShuffle) {
    const ddp::DistributedSampler sampler{7, {1, 3}, {.shuffle = false}};
    EXPECT_EQ(sampler.indices(), (Indices{1, 4, 0}));
}

TEST(DistributedSampler, GivesAnotherOrderInAnotherEpochAndTheSameAgain) {
    ddp::DistributedSampler sampler{100, {0, 2}};
    const Indices first = sampler.indices();
    sampler.set_epoch(1);
    EXPECT_EQ(sampler.epoch(), 1);
    EXPECT_NE(sampler.indices(), first);
    sampler.set_epoch(0);
    EXPECT_EQ(sampler.indices(), first);
}

TEST(DistributedSampler, AddsTheEpochToTheSeed) {
    ddp::DistributedSampler sampler{100, {0, 2}, {.seed = 3}};
    sampler.set_epoch(4);
    const ddp::DistributedSampler other{100, {0, 2}, {.seed = 7}};
    EXPECT_EQ(sampler.indices(), other.indices());
}

TEST(DistributedSampler, RefusesToTrainOnNothing) {
    const auto error_of = [](std::size_t samples, bool drop_last) -> std::string {
        try {
            const ddp::DistributedSampler sampler{samples, {0, 4}, {.drop_last = drop_last}};
        } catch (const ddp::UsageError& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(error_of(3, true),
              "distributed sampler: 3 samples leave none for each of 4 ranks; use fewer ranks, or "
              "leave drop_last at false (allow_empty accepts it)");
    EXPECT_EQ(error_of(0, false),
              "distributed sampler: 0 samples leave none for each of 4 ranks; is the data there? "
              "allow_empty accepts it");
    EXPECT_EQ(error_of(3, false), "no error");
    EXPECT_EQ(error_of(4, true), "no error");
    ddp::DistributedSampler sampler{4, {0, 4}, {.drop_last = true}};
    sampler.set_epoch(0, 4);  // a run that goes on where an epoch had ended
    EXPECT_EQ(sampler.size(), 0U);
}

TEST(DistributedSampler, GivesNothingForNoSamplesWhenAsked) {
    const ddp::DistributedSampler sampler{0, {1, 3}, {.allow_empty = true}};
    EXPECT_EQ(sampler.size(), 0U);
    EXPECT_TRUE(sampler.indices().empty());
}

TEST(DistributedSampler, RefusesAShardThatDoesNotExist) {
    try {
        const ddp::DistributedSampler sampler{10, {3, 3}};
        FAIL() << "no exception";
    } catch (const ddp::UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("shard 3 of 3"), std::string::npos);
    }
    EXPECT_THROW((ddp::DistributedSampler{10, {0, 0}}), ddp::UsageError);
}

TEST(DistributedSampler, GivesARankThePartsOfItsLogicalRanks) {
    for (const std::size_t ranks : {1U, 2U, 4U, 8U}) {
        Indices together;
        Indices logical;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const ddp::DistributedSampler sampler{
                101, {rank, ranks}, {.seed = 3, .logical_ranks = 8}};
            EXPECT_EQ(sampler.parts(), 8 / ranks);
            EXPECT_EQ(sampler.size(), sampler.parts() * 13);
            together.insert(together.end(), sampler.begin(), sampler.end());
        }
        for (std::size_t rank = 0; rank < 8; ++rank) {
            const ddp::DistributedSampler sampler{101, {rank, 8}, {.seed = 3}};
            logical.insert(logical.end(), sampler.begin(), sampler.end());
        }
        EXPECT_EQ(together, logical) << ranks << " ranks";
    }
}

TEST(DistributedSampler, RefusesLogicalRanksThatCannotBeShared) {
    try {
        const ddp::DistributedSampler sampler{10, {0, 4}, {.logical_ranks = 6}};
        FAIL() << "no exception";
    } catch (const ddp::UsageError& error) {
        EXPECT_STREQ(error.what(),
                     "distributed sampler: 6 logical ranks cannot be shared by 4 ranks; make it a "
                     "multiple");
    }
}

TEST(DistributedSampler, ResumesOnOtherNumbersOfRanksWithEachSampleOnce) {
    std::size_t finished = 0;
    Indices seen;
    for (const auto& part :
         {some_steps(120, 3, finished, 4, 5), some_steps(120, 5, finished, 2, 4),
          some_steps(120, 1, finished, 4, 1), some_steps(120, 2, finished, 8, 1)}) {
        seen.insert(seen.end(), part.begin(), part.end());
    }
    EXPECT_EQ(finished, 120U);
    std::ranges::sort(seen);
    Indices all(120);
    std::iota(all.begin(), all.end(), std::size_t{0});
    EXPECT_EQ(seen, all);
}

TEST(DistributedSampler, ResumesWithTheRestOfTheSameOrder) {
    for (const bool drop_last : {false, true}) {
        for (const bool shuffle : {false, true}) {
            ddp::DistributedSampler whole{
                101, {1, 4}, {.shuffle = shuffle, .seed = 5, .drop_last = drop_last}};
            whole.set_epoch(2);
            ddp::DistributedSampler rest = whole;
            rest.set_epoch(2, std::size_t{4} * 6);
            EXPECT_EQ(rest.size(), whole.size() - 6);
            EXPECT_EQ(Indices(rest.begin(), rest.end()), Indices(whole.begin() + 6, whole.end()));
            rest.set_epoch(2);
            EXPECT_EQ(rest.indices(), whole.indices());
            rest.set_epoch(2, 104);
            EXPECT_EQ(rest.size(), 0U);
        }
    }
}

TEST(DistributedSampler, GivesTheSameShardsWhetherItKeepsTheWholeOrderOrNot) {
    for (const std::size_t n : {1U, 5U, 63U, 64U, 65U, 128U, 129U, 1000U}) {
        const ddp::DistributedSampler whole{n, {0, 1}, {.seed = 9}};
        for (const std::size_t world : {1U, 2U, 3U, 7U, 70U}) {
            for (std::size_t rank = 0; rank < world; ++rank) {
                const ddp::DistributedSampler part{n, {rank, world}, {.seed = 9}};
                ASSERT_EQ(part.size(), (n + world - 1) / world);
                for (std::size_t i = 0; i < part.size(); ++i) {
                    ASSERT_EQ(part.indices()[i], whole.indices()[(rank + i * world) % n]);
                }
            }
        }
    }
}

TEST(DistributedSampler, WarnsOnceOfASecondPassWithoutSetEpoch) {
    const auto pass = [](const ddp::DistributedSampler& sampler) {
        return static_cast<std::size_t>(std::distance(sampler.begin(), sampler.end()));
    };
    const auto log_of = [](const auto& body) {
        testing::internal::CaptureStderr();
        body();
        return testing::internal::GetCapturedStderr();
    };
    const std::string warning =
        "distributed sampler: a second pass over epoch 1 shows the samples in the same order "
        "again; call set_epoch(epoch) before each epoch";
    ddp::DistributedSampler sampler{10, {0, 2}};
    EXPECT_EQ(log_of([&] {
                  for (const int epoch : {0, 1}) {
                      sampler.set_epoch(epoch);
                      pass(sampler);
                  }
                  sampler.set_epoch(1);  // on purpose, it seems
                  pass(sampler);
              }),
              "");
    EXPECT_NE(log_of([&] { pass(sampler); }).find(warning), std::string::npos);
    EXPECT_EQ(log_of([&] { pass(sampler); }), "");
    EXPECT_EQ(log_of([&] {
                  const ddp::DistributedSampler in_order{10, {0, 2}, {.shuffle = false}};
                  const ddp::DistributedSampler other_rank{10, {1, 2}};
                  for (const auto* silent : {&in_order, &other_rank}) {
                      pass(*silent);
                      pass(*silent);
                  }
              }),
              "");
}
