// The wrapper itself: what it takes, what it shares at construction, what it refuses, and where
// errors of a backward come out.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;
using ::testing::HasSubstr;

torch::Tensor rows_of(const ProcessGroup& group) { return rows(6 * group.rank(), 6); }

TEST(TorchDataParallel, TakesHoldersPointersModulesAndTemporaries) {
    auto group = join_group();
    TwoLayers net;
    {
        DistributedDataParallel<TwoLayers> model{net, group};
        EXPECT_EQ(model.operator->(), net.get());
        EXPECT_TRUE(torch::equal(model(rows_of(group)), net(rows_of(group))));
        EXPECT_TRUE(torch::equal(model.forward(rows_of(group)), net(rows_of(group))));
    }
    {
        DistributedDataParallel model{net.ptr(), group};
        EXPECT_EQ(&model.module(), net.get());
    }
    {
        DistributedDataParallel model{*net, group};
        EXPECT_EQ(&model.module(), net.get());
    }
    DistributedDataParallel model{TwoLayers(), group};
    model->forward(rows_of(group)).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(group, model->first->weight.grad()));
}

TEST(TorchDataParallel, GivesAllRanksTheParametersAndBuffersOfRankZero) {
    auto group = join_group();
    TwoLayers net;
    net->fill(group.rank());
    net->first->weight.set_requires_grad(false);
    const auto counter = net->register_buffer("counter", torch::full({2}, group.rank()));
    DistributedDataParallel model{net, group};
    TwoLayers of_rank_zero;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        EXPECT_TRUE(torch::equal(net->parameters()[i], of_rank_zero->parameters()[i]));
    }
    EXPECT_TRUE(torch::equal(counter, torch::zeros({2}, torch::kInt64)));
}

TEST(TorchDataParallel, LeavesNamesAndParametersAlone) {
    auto group = join_group();
    TwoLayers net;
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.5));
    const auto names = net->named_parameters().keys();
    DistributedDataParallel model{net, group};
    EXPECT_EQ(net->named_parameters().keys(), names);
    const auto before = net->second->bias.detach().clone();
    model(rows_of(group)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(net->second->bias, before - 0.5 * 6));
    EXPECT_TRUE(same_bits_on_all_ranks(group, net->first->weight));
}

TEST(TorchDataParallel, LeavesFrozenParametersOut) {
    auto group = join_group();
    TwoLayers net;
    net->first->weight.set_requires_grad(false);
    DistributedDataParallel model{net, group};
    model(rows_of(group)).sum().backward();
    EXPECT_FALSE(net->first->weight.grad().defined());
    EXPECT_TRUE(same_bits_on_all_ranks(group, net->first->bias.grad()));
    for (torch::Tensor& value : net->parameters()) value.set_requires_grad(false);
    EXPECT_THAT(error_of<UsageError>([&] {
                    DistributedDataParallel again{net, group};
                }),
                HasSubstr("no parameter that requires a gradient"));
}

TEST(TorchDataParallel, KeepsBuffersEqualWhenAsked) {
    for (const bool wanted : {true, false}) {
        auto group = join_group();
        torch::nn::Sequential net(torch::nn::Linear(5, 4), torch::nn::BatchNorm1d(4));
        DistributedDataParallel model{net, group, {.broadcast_buffers = wanted}};
        model->forward(rows_of(group)).sum().backward();
        for (const torch::Tensor& buffer : net->buffers()) {
            const bool same = same_bits_on_all_ranks(group, buffer);
            const bool counter = buffer.numel() == 1;  // of batches: equal in any case
            EXPECT_EQ(same, wanted || counter || group.size() == 1);
        }
        {
            const auto guard = model.no_sync();
            model->forward(rows_of(group)).sum().backward();
        }
        const bool same = same_bits_on_all_ranks(group, net->buffers()[0]);
        EXPECT_EQ(same, group.size() == 1) << "sent under no_sync";
    }
}

TEST(TorchDataParallel, RefusesASecondWrapper) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    const TwoLayers copy_of_the_holder = net;
    EXPECT_THAT(error_of<UsageError>([&] {
                    DistributedDataParallel again{copy_of_the_holder, group};
                }),
                HasSubstr("parameter first.weight belongs to another DistributedDataParallel"));
    torch::nn::Sequential around(net);
    EXPECT_THAT(error_of<UsageError>([&] {
                    DistributedDataParallel again{around, group};
                }),
                HasSubstr("parameter 0.first.weight belongs to another"));
    model(rows_of(group)).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(group, net->first->weight.grad()));
}

TEST(TorchDataParallel, NamesParametersThatGetNoGradient) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    EXPECT_THAT(error_of<UsageError>([&] { net->second(rows(0, 2, 4)).sum().backward(); }),
                HasSubstr("without a gradient for first.weight, first.bias"));
}

TEST(TorchDataParallel, RefusesSparseGradientsByName) {
    auto group = join_group();
    torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 2).sparse(true)));
    DistributedDataParallel model{net, group};
    const auto index = torch::tensor({1});
    EXPECT_THAT(error_of<UsageError>([&] { model->forward(index).sum().backward(); }),
                HasSubstr("the gradient of 0.weight is sparse"));
}

TEST(TorchDataParallel, RefusesAParameterThatChangedItsShapeOrType) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    const auto forward = [&] { model->forward(rows_of(group)); };
    net->second->bias.set_data(torch::ones({2}));
    EXPECT_THAT(error_of<UsageError>(forward),
                HasSubstr("second.bias is Float [2] on cpu, but was Float [3] on cpu when"));
    net->second->bias.set_data(torch::ones({3}, torch::kFloat64));
    EXPECT_THAT(error_of<UsageError>(forward), HasSubstr("second.bias is Double [3] on cpu"));
}

TEST(TorchDataParallel, RefusesParametersThatCannotBeSentByName) {
    auto group = join_group();
    torch::nn::Linear net(3, 2);
    net->bias.set_data(torch::zeros({1}).expand({2}));
    EXPECT_THAT(error_of<UsageError>([&] {
                    DistributedDataParallel model{net, group};
                }),
                HasSubstr("parameter bias cannot be averaged"));
    net->to(torch::kComplexFloat);
    EXPECT_THAT(error_of<UsageError>([&] {
                    DistributedDataParallel model{net, group};
                }),
                HasSubstr("parameter weight cannot be averaged"));
}

TEST(TorchDataParallel, RefusesMemoryFormatsThatDiffer) {
    auto group = join_group();
    torch::nn::Conv2d net(3, 4, 2);
    if (group.rank() == 0) {
        net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    }
    const auto error = error_of<UsageError>([&] { DistributedDataParallel model{net, group}; });
    EXPECT_THAT(error, HasSubstr(group.size() == 1 ? "no error" : "different memory formats"));
}

TEST(TorchDataParallel, LetsTheExceptionOfAHookOutOfBackward) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    bool failing = true;
    net->first->bias.register_hook([&](const torch::Tensor&) {
        if (failing) throw std::out_of_range("a hook of the program's own");
    });
    const auto step = [&] { model(rows_of(group)).sum().backward(); };
    EXPECT_THAT(error_of<std::out_of_range>(step), HasSubstr("a hook of the program's own"));
    failing = false;
    EXPECT_THAT(error_of<UsageError>(step), HasSubstr("an earlier backward ended by an exception"));
}

TEST(TorchDataParallel, CanWrapAnewAfterABackwardThatThrew) {
    auto group = join_group();
    TwoLayers net;
    {
        DistributedDataParallel model{net, group};
        EXPECT_THROW(net->second(rows(0, 2, 4)).sum().backward(), UsageError);
    }
    net->zero_grad();
    DistributedDataParallel model{net, group};
    model(rows_of(group)).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(group, net->first->weight.grad()));
}

TEST(TorchDataParallel, LetsTheErrorOfTheGroupOutOfBackward) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    if (group.size() == 1) return;
    if (group.rank() == 0) {
        std::vector<float> other(1);
        EXPECT_THROW(group.all_reduce(other).wait(), Error);
    } else {
        EXPECT_THROW(model(rows_of(group)).sum().backward(), Error);
    }
}

TEST(TorchDataParallel, CanGoWhileABackwardsGraphIsAlive) {
    auto group = join_group();
    TwoLayers net;
    torch::Tensor loss;
    {
        DistributedDataParallel model{net, group};
        loss = model(rows_of(group)).sum();
    }
    loss.backward();
    TwoLayers alone;
    alone(rows_of(group)).sum().backward();
    EXPECT_TRUE(torch::equal(net->first->weight.grad(), alone->first->weight.grad()));
}

}  // namespace
