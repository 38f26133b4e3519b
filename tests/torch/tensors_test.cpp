// Tensors in collectives, and the sampler in torch's own data loader.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using ::testing::HasSubstr;

TEST(TorchTensors, AreReducedInPlaceWithAnyTypeAndStrides) {
    auto group = join_group();
    const int ranks = group.size();
    for (const auto type :
         {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt64,
          torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt8}) {
        auto tensor = torch::full({3, 4}, group.rank() + 1, type);
        libtorch::all_reduce(group, tensor);
        EXPECT_TRUE(torch::equal(tensor, torch::full({3, 4}, ranks * (ranks + 1) / 2, type)));
    }
    auto whole = torch::zeros({3, 4});
    libtorch::all_reduce(group, whole.narrow(1, 1, 2).fill_(group.rank()), ReduceOp::max);
    const auto wanted = torch::zeros({3, 4});
    wanted.narrow(1, 1, 2).fill_(ranks - 1);
    EXPECT_TRUE(torch::equal(whole, wanted)) << whole;
}

TEST(TorchTensors, NameTheProgramsLineWhereTheirSizesDiffer) {
    auto group = join_group();
    if (group.size() == 1) return;
    auto tensor = torch::zeros({group.rank() == 0 ? 3 : 4});
    for (const bool sends : {false, true}) {
        auto other = group.split({});
        const auto differ = [&] {
            if (sends) {
                libtorch::broadcast(other, tensor, Root{1});
            } else {
                libtorch::all_reduce(other, tensor);
            }
            other.barrier().wait();  // where a root hears of it that did not wait for the others
        };
        EXPECT_THAT(error_of<UsageError>(differ),
                    HasSubstr("(this rank's call: tensors_test.cpp:"));
    }
}

TEST(TorchTensors, AreBroadcastAlsoAsParameters) {
    auto group = join_group();
    auto tensor = torch::full({2, 3}, group.rank(), torch::kFloat64).set_requires_grad(true);
    const auto version = tensor._version();
    libtorch::broadcast(group, tensor, Root{group.size() - 1});
    EXPECT_TRUE(torch::equal(tensor, torch::full({2, 3}, group.size() - 1, torch::kFloat64)));
    EXPECT_GT(tensor._version(), version) << "autograd would not notice";
    auto flag = torch::full({1}, group.rank() == 0, torch::kBool);
    libtorch::broadcast(group, flag.t());
    EXPECT_TRUE(flag.item<bool>());
}

TEST(TorchTensors, AreViewedWithoutACopy) {
    auto group = join_group();
    auto tensor = torch::full({2, 3}, 2.0F);
    const TensorView view = libtorch::view(tensor);
    EXPECT_EQ(view.data, tensor.data_ptr());
    EXPECT_EQ(view.shape, (Shape{2, 3}));
    group.all_reduce(libtorch::view(tensor)).wait();
    EXPECT_EQ(tensor[1][2].item<float>(), 2.0F * static_cast<float>(group.size()));
    EXPECT_EQ(libtorch::view(torch::ones({1, 1, 1, 2, 1, 1, 1, 1, 3})).shape, (Shape{6}));
}

TEST(TorchTensors, ThatCannotBeSentAreRefused) {
    EXPECT_THAT(error_of<UsageError>([] {
                    libtorch::view(torch::ones({2, 3}).t());
                }),
                HasSubstr("[3, 2] on cpu is not contiguous"));
    EXPECT_THAT(
        error_of<UsageError>([] { libtorch::view(torch::ones({2}, torch::kComplexFloat)); }),
        HasSubstr("cannot be sent"));
    EXPECT_THAT(error_of<UsageError>([] { libtorch::view(torch::eye(2).to_sparse()); }),
                HasSubstr("is sparse"));
}

// Sample i is the number i.
struct Numbers : torch::data::datasets::Dataset<Numbers> {
    explicit Numbers(std::size_t size) : size_(size) {}
    torch::data::Example<> get(std::size_t index) override {
        const auto number = torch::full({1}, static_cast<std::int64_t>(index), torch::kInt64);
        return {number, number};
    }
    torch::optional<std::size_t> size() const override { return size_; }
    std::size_t size_;
};

constexpr std::size_t samples = 23;
constexpr DistributedSamplerOptions shuffled{.seed = 17};

std::vector<std::size_t> shard_of_epoch(const ProcessGroup& group, std::int64_t epoch) {
    ddp::DistributedSampler sampler(samples, group.shard(), shuffled);
    sampler.set_epoch(epoch);
    return sampler.indices();
}

template <class Loader>
std::vector<std::size_t> numbers_of(Loader& loader) {
    std::vector<std::size_t> numbers;
    for (const auto& batch : loader) {
        EXPECT_LE(batch.data.size(0), 4);
        for (std::int64_t i = 0; i < batch.data.size(0); ++i) {
            numbers.push_back(
                static_cast<std::size_t>(batch.data[i].template item<std::int64_t>()));
        }
    }
    return numbers;
}

TEST(TorchSampler, GivesTorchsLoaderThisRanksShardOfEachEpoch) {
    auto group = join_group();
    libtorch::DistributedSampler sampler(samples, group.shard(), shuffled);
    auto loader = torch::data::make_data_loader(
        Numbers(samples).map(torch::data::transforms::Stack<>()), sampler, /*batch size*/ 4);
    for (const std::int64_t epoch : {0, 1, 5}) {
        sampler.set_epoch(epoch);
        EXPECT_EQ(numbers_of(*loader), shard_of_epoch(group, epoch)) << "epoch " << epoch;
    }
    EXPECT_EQ(sampler.size(), shard_of_epoch(group, 0).size());
}

TEST(TorchSampler, HasTheShardsOfPythonsSampler) {
    // From Python: list(DistributedSampler(range(7), 2, rank, seed=3)) after set_epoch(2).
    libtorch::DistributedSampler first(7, Shard{0, 2}, {.seed = 3});
    libtorch::DistributedSampler second(7, Shard{1, 2}, {.seed = 3});
    first.set_epoch(2);
    second.set_epoch(2);
    EXPECT_EQ(first.next(9).value(), (std::vector<std::size_t>{1, 4, 6, 3}));
    EXPECT_EQ(second.next(9).value(), (std::vector<std::size_t>{0, 2, 5, 1}));
    EXPECT_FALSE(first.next(9).has_value());
}

TEST(TorchSampler, GivesBatchesOfLogicalRanksInTurn) {
    const DistributedSamplerOptions options{.seed = 17, .drop_last = true, .logical_ranks = 4};
    libtorch::DistributedSampler sampler(22, Shard{1, 2}, options);
    std::vector<ddp::DistributedSampler> alone;  // of logical ranks 2 and 3
    for (const std::size_t logical : {2, 3}) {
        alone.emplace_back(22, Shard{logical, 4},
                           DistributedSamplerOptions{.seed = 17, .drop_last = true});
    }
    for (const std::size_t first : {0, 2, 4}) {
        for (const ddp::DistributedSampler& logical : alone) {
            const auto all = logical.indices();
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
            const auto end = first == 4 ? all.end() : begin + 2;
            EXPECT_EQ(sampler.next(2).value(), std::vector<std::size_t>(begin, end));
        }
    }
    EXPECT_FALSE(sampler.next(2).has_value());
    sampler.reset();
    EXPECT_EQ(sampler.next(1).value().front(), alone[0].indices().front());
    EXPECT_EQ(sampler.next(1).value().front(), alone[1].indices().front());
}

TEST(TorchSampler, GoesOnWhereItWasSaved) {
    auto group = join_group();
    std::stringstream saved;
    libtorch::DistributedSampler sampler(samples, group.shard(), shuffled);
    sampler.set_epoch(3);
    ASSERT_EQ(sampler.next(2)->size(), 2U);
    torch::save(sampler, saved);
    libtorch::DistributedSampler other(samples, group.shard(), shuffled);
    torch::load(other, saved);
    other.reset();  // as a loader does when it begins
    EXPECT_EQ(other.epoch(), 3);
    const auto shard = shard_of_epoch(group, 3);
    EXPECT_EQ(other.next(samples).value(),
              std::vector<std::size_t>(shard.begin() + 2, shard.end()));
    other.reset();
    EXPECT_EQ(other.next(samples).value(), shard) << "the next pass begins at the beginning";
}

TEST(TorchSampler, RefusesThePositionOfALargerShard) {
    std::stringstream saved;
    libtorch::DistributedSampler larger(samples, Shard{0, 1});
    ASSERT_TRUE(larger.next(20).has_value());
    torch::save(larger, saved);
    libtorch::DistributedSampler smaller(7, Shard{0, 1});
    EXPECT_THAT(error_of<UsageError>([&] { torch::load(smaller, saved); }),
                HasSubstr("at sample 20, but this rank's shard has 7"));
}

TEST(TorchSampler, TakesANewSizeFromReset) {
    libtorch::DistributedSampler sampler(samples, Shard{1, 2}, {.shuffle = false});
    sampler.reset(6);
    EXPECT_EQ(sampler.next(10).value(), (std::vector<std::size_t>{1, 3, 5}));
}

}  // namespace
