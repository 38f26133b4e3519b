// What else a backward holds beside one wrapped module: a second one, and collectives of its own.
// The averages are right, or every rank hears that the order differs.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "torch/torch_nets.hpp"

namespace {

using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;
using libtorch::DistributedDataParallelOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Each parameter is a bucket.
DistributedDataParallelOptions small_buckets(bool find_unused) {
    return {.reducer = {.bucket_cap_mb = 0.0001,
                        .first_bucket_mb = 0.0001,
                        .find_unused_parameters = find_unused}};
}

// `branch` is used on rank 0 alone; its buckets are the first.
struct BranchOnRankZeroImpl : torch::nn::Module {
    BranchOnRankZeroImpl() {
        const torch::NoGradGuard no_grad;
        std::int64_t number = 0;
        for (torch::Tensor& value : parameters()) {
            value.copy_((torch::arange(value.numel()) % 5 - 2 + number++).view(value.sizes()));
        }
    }
    torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 40));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(40, 3));
    torch::nn::Linear branch = register_module("branch", torch::nn::Linear(40, 40));
};
TORCH_MODULE(BranchOnRankZero);

void zero(const torch::nn::Module& module) {
    for (torch::Tensor& value : module.parameters()) value.mutable_grad() = torch::Tensor();
}

bool all_are(const torch::Tensor& gradient, double expected) {
    return gradient.defined() &&
           torch::allclose(gradient, torch::full_like(gradient, expected), 1e-6, 0);
}

// Two wrapped modules of the same sizes in one graph.
class TwoModules {
public:
    explicit TwoModules(ProcessGroup& group)
        : group_(group),
          first_(one, group, small_buckets(true)),
          second_(other, group, small_buckets(false)) {}

    // Backward comes to the modules in the order opposite to that of their forwards.
    torch::Tensor loss(bool other_comes_first) {
        zero(*one);
        zero(*other);
        const auto h = one->in(torch::ones({1, 5}));
        torch::Tensor y, z;
        const auto use_other = [&] { y = second_(h); };
        const auto use_branch = [&] { z = group_.rank() == 0 ? one->branch(h) : h * 0; };
        if (other_comes_first) use_branch();
        use_other();
        if (!other_comes_first) use_branch();
        const auto w = one->out(torch::zeros({1, 40}));  // comes to its gradient first
        const auto loss = 100 * y.sum() + 2 * z.sum() + w.sum();
        first_.prepare_for_backward(loss);
        return loss;
    }

    BranchOnRankZero one;
    torch::nn::Linear other{40, 40};

private:
    ProcessGroup& group_;
    DistributedDataParallel<BranchOnRankZero> first_;
    DistributedDataParallel<torch::nn::Linear> second_;
};

TEST(TorchOrder, IsOneForTwoModulesInOneBackward) {
    ProcessGroup group = join_group();
    TwoModules two(group);
    for (int step = 0; step < 5; ++step) {
        two.loss(false).backward();
        EXPECT_TRUE(all_are(two.one->branch->bias.grad(), 2.0 / group.size())) << "step " << step;
        EXPECT_TRUE(all_are(two.one->out->bias.grad(), 1)) << "step " << step;
        EXPECT_TRUE(all_are(two.other->bias.grad(), 100)) << "step " << step;
    }
}

// Rank 0 comes to the other module before its branch; the others send the branch first.
TEST(TorchOrder, IsCheckedBetweenTwoModulesInOneBackward) {
    ProcessGroup group = join_group();
    TwoModules two(group);
    const auto loss = two.loss(true);
    const auto error = error_of<UsageError>([&] { loss.backward(); });
    if (group.size() == 1) {
        EXPECT_EQ(error, "no error");
    } else {
        EXPECT_THAT(error, AllOf(HasSubstr("differs between ranks"), HasSubstr("of reducer 1"),
                                 HasSubstr("of reducer 2"), HasSubstr("in the same order")));
    }
}

// A statistic over all ranks, as a user writes it: one collective each way.
struct SummedOverRanks : torch::autograd::Function<SummedOverRanks> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                 ProcessGroup* group) {
        context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
        torch::Tensor sum = x.clone();
        libtorch::all_reduce(*group, sum);
        return sum;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        torch::Tensor sum = gradients[0].contiguous().clone();
        libtorch::all_reduce(*reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt()),
                             sum);
        return {sum, torch::Tensor()};
    }
};

// The sum's gradient is that of all ranks' losses: row sums of `out`, and of `branch` for rank 0's.
TEST(TorchOrder, IsOneForACollectiveWithinABackward) {
    ProcessGroup group = join_group();
    BranchOnRankZero net;
    const auto ones_through = [](const torch::nn::Linear& layer) {
        return layer->weight.detach().sum(0);
    };
    DistributedDataParallel model{net, group, small_buckets(true)};
    for (int step = 0; step < 5; ++step) {
        zero(*net);
        const auto x = rows(group.rank() + step, 1);
        const auto h = SummedOverRanks::apply(net->in(x), &group);
        auto loss = net->out(h).sum();
        if (group.rank() == 0) loss = loss + 2 * net->branch(h).sum();
        model.prepare_for_backward(loss);
        loss.backward();

        const auto expected = group.size() * ones_through(net->out) + 2 * ones_through(net->branch);
        EXPECT_TRUE(torch::allclose(net->in->bias.grad(), expected)) << "step " << step;
        const auto mean_x = rows(step, group.size()).mean(0);
        EXPECT_TRUE(torch::allclose(net->in->weight.grad(), torch::outer(expected, mean_x)))
            << "step " << step;
        EXPECT_TRUE(all_are(net->branch->bias.grad(), 2.0 / group.size())) << "step " << step;
    }
}

}  // namespace
