// DataLoader: order, sizes, threads, errors and early ends, for each number of workers. The samples
// are their own indices, so that a batch shows what it was made from.
#include <ddp/data_loader.hpp>
#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "data/random_permutation.hpp"

namespace {

using Indices = std::vector<std::size_t>;

// A batch that cannot be copied.
struct Batch {
    std::unique_ptr<Indices> indices;
    std::thread::id prepared_by;
};

struct CountingDataset {
    std::size_t samples;
    std::size_t broken_sample = static_cast<std::size_t>(-1);
    mutable std::atomic<std::size_t> prepared = 0;

    std::size_t size() const { return samples; }
    Batch batch(std::span<const std::size_t> indices) const {
        for (const std::size_t index : indices) {
            if (index == broken_sample) throw std::domain_error("sample is broken");
        }
        ++prepared;
        return {std::make_unique<Indices>(indices.begin(), indices.end()),
                std::this_thread::get_id()};
    }
};

template <class Loader>
std::vector<Indices> batches_of(const Loader& loader) {
    std::vector<Indices> batches;
    for (const auto& [indices, prepared_by] : loader) batches.push_back(*indices);
    return batches;
}

template <class Make>
void expect_usage_error(const Make& make, const std::string& text) {
    try {
        make();
        ADD_FAILURE() << "no exception";
    } catch (const ddp::UsageError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(text));
    }
}

class DataLoaderWorkers : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Counts, DataLoaderWorkers, testing::Values(0, 1, 2, 5));

}  // namespace

static_assert(std::ranges::input_range<const ddp::DataLoader<CountingDataset>>);
static_assert(ddp::Dataset<std::vector<float>>);
static_assert(!ddp::Dataset<std::vector<std::unique_ptr<int>>>);  // such samples cannot be copied
static_assert(ddp::Sampler<ddp::DistributedSampler>);

TEST_P(DataLoaderWorkers, GivesTheSamplersOrderInBatches) {
    const CountingDataset dataset{1001};
    ddp::DistributedSampler sampler{dataset.size(), {1, 2}, {.seed = 17}};
    const ddp::DataLoader loader{dataset, sampler, {.batch_size = 7, .workers = GetParam()}};
    EXPECT_EQ(loader.size(), 72U);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        sampler.set_epoch(epoch);
        const auto batches = batches_of(loader);
        ASSERT_EQ(batches.size(), loader.size());
        Indices all;
        for (const Indices& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
        EXPECT_EQ(all, sampler.indices());
        EXPECT_EQ(batches.front().size(), 7U);
        EXPECT_EQ(batches.back().size(), 501U % 7);
    }
}

// Ten samples for four logical ranks, three each, of which this rank works for two.
TEST_P(DataLoaderWorkers, TakesBatchesOfLogicalRanksInTurn) {
    const CountingDataset dataset{10};
    const ddp::DistributedSampler sampler{
        dataset.size(), {1, 2}, {.shuffle = false, .logical_ranks = 4}};
    const ddp::DataLoader loader{dataset, sampler, {.batch_size = 2, .workers = GetParam()}};
    EXPECT_EQ(loader.size(), 4U);
    EXPECT_EQ(batches_of(loader), (std::vector<Indices>{{2, 6}, {3, 7}, {0}, {1}}));
    const ddp::DataLoader whole{
        dataset, sampler, {.batch_size = 2, .drop_last = true, .workers = GetParam()}};
    EXPECT_EQ(batches_of(whole), (std::vector<Indices>{{2, 6}, {3, 7}}));
}

TEST_P(DataLoaderWorkers, LeavesOutTheShortBatchWithDropLast) {
    const CountingDataset dataset{10};
    const ddp::DataLoader loader{dataset,
                                 {.batch_size = 4, .drop_last = true, .workers = GetParam()}};
    EXPECT_EQ(loader.size(), 2U);
    EXPECT_EQ(batches_of(loader), (std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST_P(DataLoaderWorkers, PassesAnExceptionOnWhenTheLoopGetsThere) {
    const CountingDataset dataset{.samples = 100, .broken_sample = 52};
    const ddp::DataLoader loader{dataset, {.batch_size = 10, .workers = GetParam()}};
    auto it = loader.begin();
    for (std::size_t batch = 0; batch < 4; ++batch, ++it) {
        EXPECT_EQ(it->indices->front(), 10 * batch);
    }
    EXPECT_EQ(it->indices->front(), 40U);
    EXPECT_THROW(++it, std::domain_error);
    EXPECT_EQ(it, loader.end());
}

TEST_P(DataLoaderWorkers, ThrowsFromBeginWhenTheFirstBatchIsBroken) {
    const CountingDataset dataset{.samples = 100, .broken_sample = 0};
    const ddp::DataLoader loader{dataset, {.batch_size = 10, .workers = GetParam()}};
    EXPECT_THROW(loader.begin(), std::domain_error);
}

TEST_P(DataLoaderWorkers, MayBeLeftAtAnyBatch) {
    const CountingDataset dataset{40};
    const ddp::DataLoader loader{dataset, {.batch_size = 4, .workers = GetParam()}};
    for (std::size_t stop = 0; stop < loader.size(); ++stop) {
        std::size_t seen = 0;
        for (const auto& batch : loader) {
            EXPECT_EQ(batch.indices->front(), 4 * seen);
            if (seen++ == stop) break;
        }
        EXPECT_EQ(seen, stop + 1);
    }
}

TEST_P(DataLoaderWorkers, PreparesInTheCallerOnlyWithoutWorkers) {
    const CountingDataset dataset{4};
    const ddp::DataLoader loader{dataset, {.workers = GetParam()}};
    for (const auto& batch : loader) {
        EXPECT_EQ(batch.prepared_by == std::this_thread::get_id(), GetParam() == 0);
    }
}

TEST_P(DataLoaderWorkers, NeverPreparesMoreThanAsked) {
    const CountingDataset dataset{1000};
    const ddp::DataLoader loader{dataset, {.workers = GetParam(), .prefetch_batches = 3}};
    const std::size_t ahead = GetParam() == 0 ? 0 : std::max<std::size_t>(GetParam(), 3);
    std::size_t taken = 0;
    for ([[maybe_unused]] const auto& batch : loader) {
        EXPECT_LE(dataset.prepared, ++taken + ahead);
    }
    EXPECT_EQ(dataset.prepared, 1000U);
}

TEST_P(DataLoaderWorkers, GivesNothingForNoSamples) {
    const CountingDataset dataset{0};
    const ddp::DataLoader loader{dataset,
                                 {.batch_size = 4, .drop_last = true, .workers = GetParam()}};
    EXPECT_EQ(loader.size(), 0U);
    EXPECT_TRUE(batches_of(loader).empty());
}

namespace {

// Returns from batch() only when `wanted` threads are in it together, or after a long time.
class MeetingDataset {
public:
    explicit MeetingDataset(std::size_t wanted) : wanted_(wanted) {}
    std::size_t size() const { return wanted_; }
    bool batch(std::span<const std::size_t>) const {
        std::unique_lock lock(mutex_);
        ++inside_;
        changed_.notify_all();
        return changed_.wait_for(lock, std::chrono::seconds{20},
                                 [this] { return inside_ == wanted_; });
    }

private:
    std::size_t wanted_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    mutable std::size_t inside_ = 0;
};

}  // namespace

TEST(DataLoader, LetsAllWorkersPrepareAtOnce) {
    const MeetingDataset dataset{4};
    const ddp::DataLoader loader{dataset, {.workers = 4, .prefetch_batches = 1}};
    for (const bool met : loader) EXPECT_TRUE(met);
}

TEST(DataLoader, MakesVectorsOfSingleSamples) {
    const std::vector<std::string> words{"a", "b", "c"};
    const ddp::DataLoader loader{words, {.batch_size = 2}};
    std::vector<std::vector<std::string>> batches;
    for (auto& batch : loader) batches.push_back(std::move(batch));
    EXPECT_THAT(batches,
                testing::ElementsAre(testing::ElementsAre("a", "b"), testing::ElementsAre("c")));
}

TEST(DataLoader, ShufflesLikeTorchsRandpermOfSeedPlusEpoch) {
    Indices numbers(50);
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    ddp::DataLoader loader{numbers, {.batch_size = 50, .shuffle = true, .seed = 40}};
    for (const int epoch : {0, 2}) {
        loader.set_epoch(epoch);
        EXPECT_EQ(*loader.begin(),
                  ddp::data::random_permutation(50, 40 + epoch, ddp::RandpermEra::since_2025));
    }
}

TEST(DataLoader, WarnsOfASecondShuffledPassWithoutSetEpoch) {
    const CountingDataset dataset{10};
    testing::internal::CaptureStderr();
    ddp::DataLoader loader{dataset, {.shuffle = true}};
    for (const int epoch : {0, 1}) {
        loader.set_epoch(epoch);
        batches_of(loader);
    }
    const ddp::DataLoader in_order{dataset};
    batches_of(in_order);
    batches_of(in_order);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    testing::internal::CaptureStderr();
    batches_of(loader);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::HasSubstr("data loader: a second pass over epoch 1 shows"));
}

TEST(DataLoader, CountsTheSamplesOfAStepOfAllRanks) {
    const CountingDataset dataset{100};
    EXPECT_EQ((ddp::DataLoader{dataset, {.batch_size = 30}}.global_batch_size()), 30U);
    const ddp::DistributedSampler sampler{dataset.size(), {1, 3}};
    EXPECT_EQ((ddp::DataLoader{dataset, sampler, {.batch_size = 30}}.global_batch_size()), 90U);
    const ddp::DistributedSampler logical{dataset.size(), {1, 2}, {.logical_ranks = 8}};
    EXPECT_EQ((ddp::DataLoader{dataset, logical, {.batch_size = 5}}.global_batch_size()), 40U);
}

TEST(DataLoader, RefusesShuffleTogetherWithASampler) {
    const CountingDataset dataset{10};
    const ddp::DistributedSampler sampler{10, {0, 1}};
    expect_usage_error([&] { ddp::DataLoader(dataset, sampler, {.shuffle = true}); },
                       "shuffle and a sampler exclude each other");
}

TEST(DataLoader, SendsSetEpochToTheSampler) {
    const CountingDataset dataset{10};
    const ddp::DistributedSampler sampler{10, {0, 1}};
    ddp::DataLoader loader{dataset, sampler};
    expect_usage_error([&] { loader.set_epoch(1); }, "call its set_epoch");
}

// What a loop has moved to a GPU is freed where that GPU is the current one.
TEST(DataLoader, LeavesTensorsOfAGpuToTheLoop) {
    const std::vector<std::size_t> dataset(8);
    const auto collate = [](const std::vector<std::size_t>&) {
        return std::pair{0, std::vector<ddp::Tensor>(1)};
    };
    const ddp::DataLoader loader{dataset, {.prefetch_batches = 1}, collate};
    std::vector<std::thread::id> freed_by;
    float element = 0;
    for (auto& [number, tensors] : loader) {
        const ddp::TensorView on_gpu{
            &element, {1}, ddp::DType::float32, {ddp::DeviceType::cuda, number}};
        tensors.front() = {
            on_gpu, {&element, [&](float*) { freed_by.push_back(std::this_thread::get_id()); }}};
    }
    EXPECT_EQ(freed_by, std::vector(8, std::this_thread::get_id()));
}

TEST(DataLoader, RefusesBatchSizeZero) {
    const CountingDataset dataset{10};
    expect_usage_error([&] { ddp::DataLoader(dataset, {.batch_size = 0}); }, "batch_size is 0");
}

TEST(DataLoader, RefusesToDropAllSamples) {
    const CountingDataset dataset{10};
    expect_usage_error([&] { ddp::DataLoader(dataset, {.batch_size = 11, .drop_last = true}); },
                       "leaves no batch of 10 samples");
}

TEST(DataLoader, RefusesASamplerOfAnotherDataset) {
    const CountingDataset dataset{10};
    const ddp::DistributedSampler sampler{11, {0, 1}, {.shuffle = false}};
    const ddp::DataLoader loader{dataset, sampler};
    expect_usage_error([&] { loader.begin(); }, "gave index 10, but the data set has 10 samples");
}

TEST(DataLoader, GoesOnInTheMiddleOfAnEpochWithTheSameBatches) {
    const CountingDataset dataset{101};
    for (const std::size_t logical_ranks : {2U, 8U}) {
        ddp::DistributedSampler sampler{
            dataset.size(), {1, 2}, {.seed = 7, .logical_ranks = logical_ranks}};
        const ddp::DataLoader loader{dataset, sampler, {.batch_size = 3}};
        sampler.set_epoch(4);
        const auto whole = batches_of(loader);
        EXPECT_EQ(loader.size(), whole.size());
        const std::size_t steps = 2;
        sampler.set_epoch(4, steps * 3 * logical_ranks);
        const auto had = static_cast<std::ptrdiff_t>(steps * sampler.parts());
        EXPECT_EQ(batches_of(loader), (std::vector<Indices>{whole.begin() + had, whole.end()}));
        EXPECT_EQ(loader.size(), whole.size() - static_cast<std::size_t>(had));
    }
}
