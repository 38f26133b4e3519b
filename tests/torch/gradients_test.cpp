// Gradients after loss.backward(): the averages over ranks, the same bits everywhere, however the
// program zeroes, keeps and shares them.
#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;

constexpr std::int64_t rows_a_rank = 6;

torch::Tensor three_rows_of(const ProcessGroup& group) {
    return rows(group.rank() * rows_a_rank, rows_a_rank);
}

// Of the sum over all ranks' rows, divided by the ranks: in one process.
std::vector<torch::Tensor> expected_gradients(TwoLayers net, const ProcessGroup& group) {
    net->zero_grad(/*set_to_none=*/true);
    net(rows(0, rows_a_rank * group.size()).to(net->first->weight.scalar_type())).sum().backward();
    auto gradients = gradients_of(*net);
    for (torch::Tensor& gradient : gradients) gradient /= group.size();
    return gradients;
}

void expect_equal(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(torch::equal(got[i], wanted[i]))
            << "parameter " << i << ": " << got[i] << " instead of " << wanted[i];
    }
}

TEST(TorchGradients, EqualThoseOfOneProcessExactly) {
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {
        for (const bool views : {true, false}) {
            auto group = join_group();
            TwoLayers net;
            net->to(type);
            DistributedDataParallel model{
                net, group, {.reducer = {.bucket_cap_mb = 1e-5, .gradient_as_bucket_view = views}}};
            for (int step = 0; step < 3; ++step) {
                net->zero_grad();
                model(three_rows_of(group).to(type)).sum().backward();
                TwoLayers alone;
                alone->to(type);
                expect_equal(gradients_of(*net), expected_gradients(alone, group));
            }
        }
    }
}

TEST(TorchGradients, OfHalfTypesAreAveraged) {
    for (const auto type : {torch::kFloat16, torch::kBFloat16}) {
        auto group = join_group();
        auto net = torch::nn::Sequential(torch::nn::Embedding(3, 4));
        net->to(type);
        DistributedDataParallel model{net, group};
        const auto mine = torch::full({1}, group.rank() % 2, torch::kInt64);
        (model(mine) * 2).sum().backward();
        const auto gradient = net->parameters()[0].grad();
        const int odd = group.size() / 2;
        const auto per_row = torch::tensor({group.size() - odd, odd, 0}, torch::kFloat32) * 2;
        const auto wanted = (per_row / group.size()).to(type).unsqueeze(1).expand({3, 4});
        EXPECT_TRUE(torch::equal(gradient, wanted)) << gradient << " instead of " << wanted;
    }
}

TEST(TorchGradients, OfAConvolutionAreThoseOfOneProcessAndTheSameBits) {
    torch::manual_seed(5);
    const auto make = [] {
        return torch::nn::Sequential(torch::nn::Conv2d(2, 6, 3), torch::nn::Tanh(),
                                     torch::nn::Flatten(), torch::nn::Linear(6 * 36, 3));
    };
    auto group = join_group();
    auto alone = make();
    const auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(alone->clone());
    DistributedDataParallel model{net, group};
    const auto inputs = torch::randn({4 * group.size(), 2, 8, 8});
    alone->forward(inputs).square().mean().backward();
    model(inputs.narrow(0, 4 * group.rank(), 4)).square().mean().backward();
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        const auto got = net->parameters()[i].grad();
        const auto wanted = alone->parameters()[i].grad();
        EXPECT_LE((got - wanted).norm().item<double>(), 1e-6 * wanted.norm().item<double>());
        EXPECT_TRUE(same_bits_on_all_ranks(group, got));
    }
}

TEST(TorchGradients, SurviveEachWayOfZeroing) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    const auto step = [&] { model(three_rows_of(group)).sum().backward(); };
    const auto wanted = expected_gradients(TwoLayers(), group);
    step();
    expect_equal(gradients_of(*net), wanted);
    net->zero_grad(/*set_to_none=*/true);
    step();
    expect_equal(gradients_of(*net), wanted);
    net->first->weight.mutable_grad() = torch::Tensor();                   // one of them only
    net->first->bias.mutable_grad() = torch::ones_like(net->first->bias);  // foreign memory
    net->second->weight.mutable_grad().zero_();
    net->second->bias.mutable_grad().zero_();
    step();
    auto with_one = wanted;
    with_one[1] = wanted[1] + 1;
    expect_equal(gradients_of(*net), with_one);
}

TEST(TorchGradients, StayInTheBucketsUntilTheyAreReset) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    model(three_rows_of(group)).sum().backward();
    const torch::Tensor handle = net->first->weight.grad();
    const void* memory = handle.data_ptr();
    net->zero_grad();
    model(three_rows_of(group)).sum().backward();
    EXPECT_EQ(net->first->weight.grad().data_ptr(), memory);
    EXPECT_TRUE(torch::equal(handle, expected_gradients(TwoLayers(), group)[0]));
}

TEST(TorchGradients, ComputedBeforeWrappingAreKept) {
    auto group = join_group();
    TwoLayers net;
    net(rows(0, 1)).sum().backward();
    const auto before = gradients_of(*net);
    DistributedDataParallel model{net, group};
    expect_equal(gradients_of(*net), before);
    model(three_rows_of(group)).sum().backward();
    auto wanted = expected_gradients(TwoLayers(), group);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), wanted[i] + before[i], 1e-6));
    }
}

TEST(TorchGradients, ComputedBeforeAreKeptWhenWrappingFails) {
    auto group = join_group();
    TwoLayers net;
    net(rows(0, 1)).sum().backward();
    const auto before = gradients_of(*net);
    const auto wrap = [&] {
        DistributedDataParallel model{net, group, {.reducer = {.bucket_cap_mb = 0}}};
    };
    EXPECT_THROW(wrap(), UsageError);
    expect_equal(gradients_of(*net), before);
    net(rows(0, 1)).sum().backward();
    EXPECT_TRUE(torch::equal(net->first->weight.grad(), before[0] * 2));
}

TEST(TorchGradients, OutliveTheWrapperAndAreLocalThen) {
    auto group = join_group();
    TwoLayers net;
    torch::Tensor handle;
    {
        DistributedDataParallel model{net, group};
        model(three_rows_of(group)).sum().backward();
        handle = net->first->weight.grad().view({-1});
    }
    const auto wanted = expected_gradients(TwoLayers(), group);
    expect_equal(gradients_of(*net), wanted);
    EXPECT_TRUE(torch::equal(handle, wanted[0].view({-1})));
    net->zero_grad();
    net(three_rows_of(group)).sum().backward();
    TwoLayers alone;
    alone(three_rows_of(group)).sum().backward();
    expect_equal(gradients_of(*net), gradients_of(*alone));
}

TEST(TorchGradients, AccumulateOnThisRankUnderNoSync) {
    for (const bool first_undefined : {true, false}) {
        auto group = join_group();
        TwoLayers net;
        DistributedDataParallel model{net, group};
        if (!first_undefined) {
            model(three_rows_of(group)).sum().backward();
            net->zero_grad();
        }
        TwoLayers alone;
        alone(three_rows_of(group)).sum().backward();
        {
            const auto guard = model.no_sync();
            model(three_rows_of(group)).sum().backward();
            expect_equal(gradients_of(*net), gradients_of(*alone));
        }
        model(three_rows_of(group)).sum().backward();
        auto wanted = expected_gradients(TwoLayers(), group);
        for (torch::Tensor& gradient : wanted) gradient *= 2;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), wanted[i], 1e-6));
        }
    }
}

TEST(TorchGradients, OfAGraphThatIsKeptAreAveragedEachTime) {
    auto group = join_group();
    TwoLayers net;
    DistributedDataParallel model{net, group};
    auto loss = model(three_rows_of(group)).sum();
    loss.backward({}, /*retain_graph=*/true);
    net->zero_grad(true);
    loss.backward();
    expect_equal(gradients_of(*net), expected_gradients(TwoLayers(), group));
}

struct TwiceImpl : torch::nn::Module {
    TwiceImpl() : weight(register_parameter("weight", torch::ones({3}))) {
        register_parameter("alias", weight);
    }
    torch::Tensor forward(const torch::Tensor& x) { return (x * weight) * weight; }
    torch::Tensor weight;
};
TORCH_MODULE(Twice);

TEST(TorchGradients, OfAParameterUsedTwiceUnderTwoNamesCountOnce) {
    auto group = join_group();
    Twice net;
    DistributedDataParallel model{net, group};
    model(torch::full({3}, group.rank() + 1.0)).sum().backward();
    EXPECT_TRUE(torch::equal(net->weight.grad(), torch::full({3}, group.size() + 1.0)));
}

TEST(TorchGradients, OfChannelsLastParametersAreAveraged) {
    auto group = join_group();
    torch::nn::Conv2d net(3, 4, 2);
    {
        const torch::NoGradGuard no_grad;
        net->weight.set_data(
            torch::ones({4, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast));
    }
    DistributedDataParallel model{net, group};
    const auto input = torch::arange(12, torch::kFloat32).view({1, 3, 2, 2});
    model(input * (group.rank() + 1)).sum().backward();
    const auto wanted = (input * (group.size() + 1) / 2).expand({4, 3, 2, 2});
    EXPECT_TRUE(torch::allclose(net->weight.grad(), wanted, 1e-6)) << net->weight.grad();
}

}  // namespace
