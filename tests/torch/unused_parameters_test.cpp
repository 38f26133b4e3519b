// Backwards that do not come to every parameter: found in autograd's graph, learned once, or named
// when they are a mistake.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;
using ::testing::HasSubstr;

// One of two branches behind a trunk; `never` is of no use.
struct BranchesImpl : torch::nn::Module {
    BranchesImpl() {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& value : parameters()) value.fill_(1);
    }
    torch::Tensor forward(const torch::Tensor& x, bool takes_left) {
        return takes_left ? left(trunk(x)) : right(trunk(x));
    }

    torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(2, 3));
    torch::nn::Linear left = register_module("left", torch::nn::Linear(3, 1));
    torch::nn::Linear right = register_module("right", torch::nn::Linear(3, 1));
    torch::nn::Linear never = register_module("never", torch::nn::Linear(2, 2));
};
TORCH_MODULE(Branches);

bool takes_left(int rank) { return rank % 2 == 0; }
torch::Tensor input_of(int rank) {
    return torch::full({1, 2}, 12.0F * static_cast<float>(rank + 1));
}

// A gradient of zeros where autograd gives none.
std::vector<torch::Tensor> gradients_or_zeros(const torch::nn::Module& module) {
    std::vector<torch::Tensor> gradients;
    for (const torch::Tensor& value : module.parameters()) {
        const auto& grad = value.grad();
        gradients.push_back(grad.defined() ? grad.clone() : torch::zeros_like(value));
    }
    return gradients;
}

// Summed over the ranks in one process, divided by them; whole numbers, but for the division.
std::vector<torch::Tensor> expected_gradients(int ranks) {
    Branches alone;
    for (int rank = 0; rank < ranks; ++rank) {
        alone(input_of(rank), takes_left(rank)).sum().backward();
    }
    auto gradients = gradients_or_zeros(*alone);
    for (torch::Tensor& gradient : gradients) gradient /= ranks;
    return gradients;
}

void expect_gradients(const Branches& net, const std::vector<torch::Tensor>& wanted) {
    const auto got = gradients_or_zeros(*net);
    const auto names = net->named_parameters().keys();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(torch::equal(got[i], wanted[i]))
            << names[i] << ": " << got[i] << " instead of " << wanted[i];
    }
}

const ReducerOptions found{.bucket_cap_mb = 1e-5, .find_unused_parameters = true};
const ReducerOptions learned{.bucket_cap_mb = 1e-5, .static_graph = true};

TEST(TorchUnusedParameters, AreFoundWhereEachRankTakesAnotherBranch) {
    for (ReducerOptions options : {found, learned}) {
        for (const bool views : {true, false}) {
            auto group = join_group();
            Branches net;
            options.gradient_as_bucket_view = views;
            DistributedDataParallel model{net, group, {.reducer = options}};
            for (const bool undefined : {true, true, false, true}) {
                model(input_of(group.rank()), takes_left(group.rank())).sum().backward();
                EXPECT_TRUE(model.averaged());
                expect_gradients(net, expected_gradients(group.size()));
                net->zero_grad(undefined);
            }
        }
    }
}

TEST(TorchUnusedParameters, MayBeOthersInEachStep) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    for (int step = 0; step < 4; ++step) {
        net->zero_grad(true);
        model(input_of(step), takes_left(step)).sum().backward();
        Branches alone;
        alone(input_of(step), takes_left(step)).sum().backward();
        expect_gradients(net, gradients_or_zeros(*alone));
        EXPECT_EQ(net->left->weight.grad().defined(), takes_left(step));
        EXPECT_EQ(net->right->weight.grad().defined(), !takes_left(step));
    }
}

TEST(TorchUnusedParameters, KeepTheirGradientsWhereNoRankUsedThem) {
    for (const ReducerOptions& options : {found, learned}) {
        auto group = join_group();
        Branches net;
        DistributedDataParallel model{net, group, {.reducer = options}};
        const auto step = [&] {
            model(input_of(group.rank()), takes_left(group.rank())).sum().backward();
        };
        net->never->weight.mutable_grad() = torch::full({2, 2}, group.rank() + 1.0);
        for (int i = 0; i < 3; ++i) {
            step();
            EXPECT_TRUE(
                torch::equal(net->never->weight.grad(), torch::full({2, 2}, group.rank() + 1.0)));
            EXPECT_FALSE(net->never->bias.grad().defined());
        }
    }
}

TEST(TorchUnusedParameters, OfALocalBranchGetTheAverageOfTheOthers) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    net->right->bias.mutable_grad() = torch::full({1}, 5.0F);
    model(input_of(group.rank()), group.rank() > 0).sum().backward();
    const auto ranks = static_cast<float>(group.size());
    // Rank 0 alone took the right branch; what the others had counts too.
    EXPECT_TRUE(torch::allclose(net->right->bias.grad(), torch::full({1}, 5 + 1 / ranks)));
    if (group.size() == 1) {
        EXPECT_FALSE(net->left->bias.grad().defined());
    } else {
        EXPECT_TRUE(torch::allclose(net->left->bias.grad(), torch::full({1}, (ranks - 1) / ranks)));
    }
    EXPECT_TRUE(same_bits_on_all_ranks(group, net->right->bias.grad()));
}

TEST(TorchUnusedParameters, AreThoseOfAllForwardsBeforeABackward) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    for (int step = 0; step < 2; ++step) {
        net->zero_grad(true);
        const auto first = model(input_of(0), true);
        const auto second = model(input_of(0), false);
        {
            const torch::NoGradGuard no_grad;
            model(input_of(0), true);
        }
        auto loss = (first + second).sum();
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();  // once more: the same ones
        Branches alone;
        (alone(input_of(0), true) + alone(input_of(0), false)).sum().backward();
        auto wanted = gradients_or_zeros(*alone);
        for (torch::Tensor& gradient : wanted) gradient *= 2;
        expect_gradients(net, wanted);
    }
}

TEST(TorchUnusedParameters, UnderNoSyncCountInTheBackwardThatAverages) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    {
        const auto guard = model.no_sync();
        model(input_of(group.rank()), true).sum().backward();
        EXPECT_FALSE(model.averaged());
    }
    model(input_of(group.rank()), false).sum().backward();
    Branches alone;
    for (int rank = 0; rank < group.size(); ++rank) {
        alone(input_of(rank), true).sum().backward();
        alone(input_of(rank), false).sum().backward();
    }
    auto wanted = gradients_or_zeros(*alone);
    for (torch::Tensor& gradient : wanted) gradient /= group.size();
    expect_gradients(net, wanted);
}

TEST(TorchUnusedParameters, AreFoundFromTheLossWhenTheNetWasNotCalledThroughTheModel) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    const auto loss = net(input_of(group.rank()), takes_left(group.rank())).sum();
    model.prepare_for_backward(loss);
    loss.backward();
    expect_gradients(net, expected_gradients(group.size()));
}

TEST(TorchUnusedParameters, CannotBeFoundWithoutAnOutput) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    EXPECT_THAT(error_of<UsageError>([&] { net(input_of(0), true).sum().backward(); }),
                HasSubstr("find_unused_parameters has seen no output of the net"));
}

using Pair = std::pair<int, torch::Tensor>;
struct PartsImpl : torch::nn::Module {
    std::tuple<std::vector<Pair>, std::optional<torch::Tensor>> forward(const torch::Tensor& x) {
        return {{{1, first(x)}, {2, second(x)}}, std::nullopt};
    }
    torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 1));
    torch::nn::Linear second = register_module("second", torch::nn::Linear(2, 1));
    torch::nn::Linear third = register_module("third", torch::nn::Linear(2, 1));
};
TORCH_MODULE(Parts);

TEST(TorchUnusedParameters, AreFoundBehindOutputsOfSeveralParts) {
    auto group = join_group();
    Parts net;
    DistributedDataParallel model{net, group, {.reducer = found}};
    const auto output = model(input_of(0));
    (std::get<0>(output)[0].second + std::get<0>(output)[1].second).sum().backward();
    EXPECT_TRUE(torch::equal(net->second->weight.grad(), input_of(0)));
    EXPECT_FALSE(net->third->weight.grad().defined());
}

TEST(TorchUnusedParameters, AreAMistakeNamedOnEveryRankWhenNotAskedFor) {
    auto group = join_group();
    Branches net;
    net->never->weight.set_requires_grad(false);
    net->never->bias.set_requires_grad(false);
    DistributedDataParallel model{net, group};
    const bool forgets = group.rank() == group.size() - 1;
    const std::string error = error_of<UsageError>([&] {
        auto output = model(input_of(0), true);
        if (!forgets) output = output + net->right(torch::ones({1, 3}));
        output.sum().backward();
    });
    EXPECT_THAT(error,
                HasSubstr("on rank " + std::to_string(group.size() - 1) +
                          ", backward ended without a gradient for right.weight, right.bias"));
}

TEST(TorchUnusedParameters, AreAMistakeWhereAStaticGraphChanges) {
    auto group = join_group();
    Branches net;
    DistributedDataParallel model{net, group, {.reducer = learned}};
    model(input_of(0), true).sum().backward();
    const bool changes = group.rank() == group.size() - 1;
    EXPECT_THAT(
        error_of<UsageError>([&] { model(input_of(0), !changes).sum().backward(); }),
        HasSubstr("on rank " + std::to_string(group.size() - 1) +
                  ", the graph has changed though static_graph is set: the gradient of right."));
}

}  // namespace
