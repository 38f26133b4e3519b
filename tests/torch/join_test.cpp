// Ranks with different numbers of batches, as in tests/reducer/join_test.cpp, with LibTorch nets.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;
using ::testing::HasSubstr;

// Each batch has a gradient of 12 for each weight, and is counted.
struct CountingNetImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
        batches.add_(1);
        return (x * first).sum() + (x * second).sum();
    }
    torch::Tensor first = register_parameter("first", torch::zeros({40}));
    torch::Tensor second = register_parameter("second", torch::zeros({40}));
    torch::Tensor batches = register_buffer("batches", torch::zeros({1}));
};
TORCH_MODULE(CountingNet);

struct Options {
    bool divide_by_initial = true;
    ReducerOptions reducer = {};
    bool resets = false;  // gradients to undefined
};

// Rank r trains r + first batches.
void train_and_expect(int first, const Options& options) {
    auto group = join_group();
    CountingNet net;
    ReducerOptions reducer = options.reducer;
    reducer.bucket_cap_mb = reducer.first_bucket_mb = 1e-5;
    DistributedDataParallel model{net, group, {.reducer = reducer}};
    torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(1)};
    model.join(
        [&] {
            for (int batch = 0; batch < group.rank() + first; ++batch) {
                net->zero_grad(options.resets);
                model(torch::full({40}, 12.0F)).backward();
                EXPECT_TRUE(model.averaged());
                optimizer.step();
            }
        },
        {.divide_by_initial_world_size = options.divide_by_initial});
    const int ranks = group.size();
    float wanted = 0;
    for (int batch = 0; batch < ranks - 1 + first; ++batch) {
        const int active = ranks - std::max(0, batch - first + 1);
        wanted -= options.divide_by_initial
                      ? 12.0F * static_cast<float>(active) / static_cast<float>(ranks)
                      : 12.0F;
    }
    EXPECT_EQ(net->first[39].item<float>(), wanted);
    EXPECT_EQ(net->second[0].item<float>(), wanted);
    EXPECT_EQ(net->batches.item<float>(), static_cast<float>(ranks - 1 + first));
    net->zero_grad();  // outside of it, as before
    model(torch::full({40}, 3.0F * static_cast<float>(group.rank()))).backward();
    EXPECT_EQ(net->first.grad()[0].item<float>(), 1.5F * static_cast<float>(ranks - 1));
}

TEST(TorchJoin, DividesByTheInitialNumberOfRanks) {
    for (const bool views : {true, false}) {
        for (const bool resets : {true, false}) {
            train_and_expect(1, {.reducer = {.gradient_as_bucket_view = views}, .resets = resets});
        }
    }
}

TEST(TorchJoin, DividesByTheRanksThatStillHaveInput) {
    for (const bool resets : {true, false}) {
        train_and_expect(1, {.divide_by_initial = false, .resets = resets});
    }
}

TEST(TorchJoin, WorksWithARankWithoutAnyInput) {
    for (const bool static_graph : {false, true}) {
        for (const bool resets : {true, false}) {
            train_and_expect(0, {.reducer = {.static_graph = static_graph}, .resets = resets});
        }
    }
}

TEST(TorchJoin, WorksWithHooksAndUnusedParameters) {
    train_and_expect(1, {.reducer = {.comm_hook = bf16_compress_hook()}});
    train_and_expect(1, {.reducer = {.find_unused_parameters = true}});
}

TEST(TorchJoin, WorksWithAccumulationUnderNoSync) {
    auto group = join_group();
    CountingNet net;
    DistributedDataParallel model{net, group};
    torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(1)};
    const bool is_last = group.rank() == group.size() - 1;
    model.join([&] {
        for (int step = 0; step <= (is_last ? 1 : 0); ++step) {
            net->zero_grad(true);
            {
                const auto guard = model.no_sync();
                model(torch::full({40}, 12.0F)).backward();
            }
            model(torch::full({40}, 12.0F)).backward();
            optimizer.step();
        }
    });
    EXPECT_EQ(net->first[39].item<float>(), -24 - 24 / static_cast<float>(group.size()));
}

TEST(TorchJoin, ThrowsOnEveryRankWhenOneIsThroughAndThatIsWanted) {
    auto group = join_group();
    if (group.size() == 1) return;
    CountingNet net;
    DistributedDataParallel model{net, group};
    const auto train = [&] {
        for (int batch = 0; batch < (group.rank() == 1 ? 1 : 2); ++batch) {
            model(torch::ones({40})).backward();
        }
    };
    EXPECT_THAT(
        error_of<UsageError>([&] { model.join(train, {.throw_on_early_termination = true}); }),
        HasSubstr("rank 1 has no more input"));
}

TEST(TorchJoin, PassesOnWhatTheLoopThrows) {
    auto group = join_group();
    CountingNet net;
    DistributedDataParallel model{net, group};
    EXPECT_THROW(model.join([] { throw std::runtime_error("bad batch"); }), std::runtime_error);
    model(torch::ones({40})).backward();
    EXPECT_EQ(net->first.grad()[0].item<float>(), 1);
}

}  // namespace
