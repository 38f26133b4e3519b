// Backwards that are not just loss.backward(): within another, through gradients, for gradients
// alone. Each works, or is refused by name.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;
using ::testing::HasSubstr;

struct SmoothImpl : torch::nn::Module {
    SmoothImpl() {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& value : parameters()) value.fill_(0.25);
    }
    torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
    torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 4));
    torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Smooth);

torch::Tensor inputs_of(int rank) {
    return torch::tensor({{0.5F, -1.0F, 0.25F}}) * static_cast<float>(rank + 1);
}

void expect_close(const torch::nn::Module& net, const torch::nn::Module& alone, int ranks) {
    for (std::size_t i = 0; i < net.parameters().size(); ++i) {
        const auto got = net.parameters()[i].grad();
        const auto wanted = alone.parameters()[i].grad() / ranks;
        EXPECT_TRUE(torch::allclose(got, wanted, 1e-5, 1e-7)) << got << " instead of " << wanted;
    }
}

// The square of the output and of its slope: the latter has a graph of its own.
torch::Tensor penalised_loss(auto& net, torch::Tensor x) {
    x.set_requires_grad(true);
    const auto output = net(x).sum();
    const auto slope = torch::autograd::grad({output}, {x}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true)[0];
    return output.square() + slope.square().sum();
}

TEST(TorchBackward, ThroughGradientsIsAveraged) {
    auto group = join_group();
    Smooth net;
    DistributedDataParallel model{net, group, {.reducer = {.find_unused_parameters = true}}};
    for (int step = 0; step < 2; ++step) {
        net->zero_grad(true);
        penalised_loss(model, inputs_of(group.rank())).backward();
        Smooth alone;
        for (int rank = 0; rank < group.size(); ++rank) {
            penalised_loss(alone, inputs_of(rank)).backward();
        }
        // The slope does not depend on the last bias; the output does.
        expect_close(*net, *alone, group.size());
    }
}

TEST(TorchBackward, ForGradientsAloneIsNotAveraged) {
    auto group = join_group();
    Smooth net;
    DistributedDataParallel model{net, group};
    const auto output = model(inputs_of(group.rank())).sum();
    const auto alone = torch::autograd::grad({output}, net->parameters(), {}, true);
    EXPECT_FALSE(model.averaged());
    EXPECT_FALSE(net->first->weight.grad().defined());
    Smooth other;
    other(inputs_of(group.rank())).sum().backward();
    EXPECT_TRUE(torch::equal(alone[0], other->first->weight.grad()));
    output.backward();
    EXPECT_TRUE(model.averaged());
    EXPECT_TRUE(same_bits_on_all_ranks(group, net->first->weight.grad()));
}

TEST(TorchBackward, ThatMakesAGraphOfTheGradientsIsRefusedByName) {
    auto group = join_group();
    Smooth net;
    DistributedDataParallel model{net, group};
    EXPECT_THAT(error_of<UsageError>([&] {
                    model(inputs_of(0)).square().sum().backward({}, true, /*create_graph=*/true);
                }),
                HasSubstr("the gradient of second.bias is part of a graph"));
    // Such a gradient and its parameter hold each other.
    for (torch::Tensor& parameter : net->parameters()) parameter.mutable_grad().reset();
}

// Keeps no graph of the layer: its backward computes it again, and runs a backward within.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                 torch::nn::LinearImpl* layer) {
        context->save_for_backward({x});
        context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
        const torch::NoGradGuard no_grad;
        return torch::tanh(layer->forward(x));
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   const torch::autograd::variable_list& grads) {
        const auto x = context->get_saved_variables()[0].detach().set_requires_grad(true);
        auto* const layer =
            reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
        const torch::AutoGradMode enable(true);
        torch::tanh(layer->forward(x)).backward(grads[0]);
        return {x.grad(), torch::Tensor()};
    }
};

// The last layer that a backward comes to first is the checkpointed one.
struct CheckpointingNetImpl : torch::nn::Module {
    CheckpointingNetImpl() {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& value : parameters()) value.fill_(0.25);
    }
    torch::Tensor forward(const torch::Tensor& x) {
        auto y = Checkpointed::apply(torch::tanh(first(x)), second.get());
        if (twice) y = Checkpointed::apply(y, second.get());
        return y;
    }
    bool twice = false;
    torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 4));
    torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 4));
};
TORCH_MODULE(CheckpointingNet);

TEST(TorchBackward, WithinABackwardIsAveragedWhenTheOuterOneEnds) {
    for (const bool twice : {false, true}) {
        auto group = join_group();
        CheckpointingNet net;
        net->twice = twice;
        // Twice: each inner backward completes the gradient once.
        DistributedDataParallel model{net, group, {.reducer = {.static_graph = twice}}};
        for (int step = 0; step < 3; ++step) {
            net->zero_grad(true);
            model(inputs_of(group.rank())).sum().backward();
            EXPECT_TRUE(model.averaged());
            CheckpointingNet alone;
            alone->twice = twice;
            for (int rank = 0; rank < group.size(); ++rank) {
                alone(inputs_of(rank)).sum().backward();
            }
            expect_close(*net, *alone, group.size());
        }
    }
}

TEST(TorchBackward, WithinABackwardIsAMistakeWhereTheModelWasNotCalled) {
    auto group = join_group();
    CheckpointingNet net;
    DistributedDataParallel model{net, group};
    EXPECT_THAT(error_of<UsageError>([&] { net(inputs_of(group.rank())).sum().backward(); }),
                HasSubstr("backward ended without a gradient for first.weight, first.bias"));
}

TEST(TorchBackward, WithinABackwardTwiceIsAMistakeWithoutAStaticGraph) {
    auto group = join_group();
    CheckpointingNet net;
    net->twice = true;
    DistributedDataParallel model{net, group};
    EXPECT_THAT(error_of<UsageError>([&] { model(inputs_of(0)).sum().backward(); }),
                HasSubstr("the gradient of second."));
}

}  // namespace
