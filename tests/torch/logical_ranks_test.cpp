// The same bits for each number of ranks that does the work of four, with dropout and batch norm:
// groups of fewer ranks within this world are compared.
#include <ddp/checkpoint.hpp>
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "torch/torch_nets.hpp"

namespace {

namespace fs = std::filesystem;
using namespace ddp;
using namespace ddp::tests;
using libtorch::DistributedDataParallel;
using ::testing::HasSubstr;

constexpr std::size_t logical_ranks = 4;

// With layers that some steps leave out.
struct NoisyNetImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x, bool takes_side) {
        auto hidden = norm(first(x));
        if (takes_side) hidden = hidden + side(x);
        // Shows whose running statistics are in place.
        hidden = hidden + 0.01 * norm->running_mean;
        return second(torch::dropout(hidden, 0.4, /*train=*/true));
    }
    torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 8));
    torch::nn::Linear side = register_module("side", torch::nn::Linear(5, 8));
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
    torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};
TORCH_MODULE(NoisyNet);

struct Run {
    ReducerOptions reducer = {};
    int accumulated = 1;
    bool undefined = false;  // gradients are reset to
    bool zeroes = true;
    bool always_takes_side = true;  // else every other logical rank does, every other step
    bool broadcast_buffers = true;
    int steps = 4;
    fs::path checkpoint = {};  // goes on from there; written at the end
};

torch::Tensor inputs_of(int step, const Shard& logical) {
    const auto first = (step * static_cast<std::int64_t>(logical.count) +
                        static_cast<std::int64_t>(logical.index)) *
                       6;
    return torch::sin(torch::arange(first * 5, (first + 6) * 5, torch::kFloat32).view({6, 5}) * 3);
}

std::vector<NamedTensor> state_of(const NoisyNet& net, auto& model) {
    std::vector<NamedTensor> state = model.state_dict();
    for (const auto& named : net->named_parameters()) {
        state.push_back({named.key(), libtorch::view(named.value())});
    }
    for (const auto& named : net->named_buffers()) {
        state.push_back({named.key(), libtorch::view(named.value())});
    }
    return state;
}

// All that a run has made: parameters, gradients, buffers.
torch::Tensor bits_of(const NoisyNet& net) {
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& value : net->parameters()) {
        parts.push_back(value.detach().flatten().to(torch::kFloat64));
        const auto& grad = value.grad();
        parts.push_back(grad.defined() ? grad.flatten().to(torch::kFloat64)
                                       : torch::full({1}, 77, torch::kFloat64));
    }
    for (const torch::Tensor& buffer : net->buffers()) {
        parts.push_back(buffer.flatten().to(torch::kFloat64));
    }
    return torch::cat(parts).clone();
}

bool takes_side(const Run& run, int step, const Shard& logical) {
    return run.always_takes_side || (static_cast<std::size_t>(step) + logical.index) % 2 == 0;
}

torch::Tensor train(ProcessGroup& group, const Run& run) {
    torch::set_num_threads(1);
    torch::manual_seed(3);
    NoisyNet net;
    ReducerOptions reducer = run.reducer;
    reducer.bucket_cap_mb = reducer.first_bucket_mb = 1e-4;
    reducer.logical_ranks = logical_ranks;
    DistributedDataParallel model{
        net, group, {.reducer = reducer, .broadcast_buffers = run.broadcast_buffers}};
    CheckpointManager checkpoints{run.checkpoint, group};
    int step = checkpoints.load_latest(state_of(net, model));
    model.load_state_dict();
    const auto turn = [&] {
        const Shard logical = model.reducer().logical_rank();
        const auto output = model(inputs_of(step, logical), takes_side(run, step, logical));
        output.square().mean().backward();
    };
    for (; step < run.steps; ++step) {
        if (run.zeroes) net->zero_grad(run.undefined);
        for (int i = 1; i < run.accumulated; ++i) {
            const auto guard = model.no_sync();
            for (int t = 0; t < 4 / group.size(); ++t) turn();
            EXPECT_FALSE(model.averaged());
        }
        do turn();
        while (!model.averaged());
        const torch::NoGradGuard no_grad;
        for (const torch::Tensor& value : net->parameters()) {
            if (value.grad().defined()) value.sub_(value.grad() * 0.3);
        }
    }
    checkpoints.save(step, state_of(net, model));
    return bits_of(net);
}

// Calls `call` in groups of the first 1, 2 and 4 ranks, as far as there are so many.
void in_groups(ProcessGroup& group, const std::function<void(ProcessGroup&)>& call) {
    for (int ranks = 1; ranks <= std::min(group.size(), 4); ranks *= 2) {
        std::vector<int> members(static_cast<std::size_t>(ranks));
        std::iota(members.begin(), members.end(), 0);
        if (auto some = group.new_group(members)) call(*some);
        group.barrier().wait();
    }
}

void expect_same_bits(const Run& run) {
    auto group = join_group();
    torch::Tensor alone;  // of rank 0
    in_groups(group, [&](ProcessGroup& some) {
        const torch::Tensor bits = train(some, run);
        EXPECT_TRUE(same_bits_on_all_ranks(some, bits) || !run.broadcast_buffers);
        if (some.size() == 1) alone = bits;
        if (some.rank() != 0) return;
        EXPECT_TRUE(torch::equal(bits, alone))
            << some.size() << " ranks: " << (bits - alone).abs().max();
    });
}

TEST(TorchLogicalRanks, GiveTheSameBitsForEveryNumberOfRanks) {
    for (const bool undefined : {true, false}) {
        for (const bool views : {true, false}) {
            expect_same_bits(
                {.reducer = {.gradient_as_bucket_view = views}, .undefined = undefined});
        }
    }
}

TEST(TorchLogicalRanks, DoSoWithAccumulationAndGradientsThatStay) {
    for (const bool undefined : {true, false}) {
        expect_same_bits({.accumulated = 3, .undefined = undefined});
    }
    expect_same_bits({.zeroes = false});
}

TEST(TorchLogicalRanks, DoSoWithUnusedParameters) {
    for (const bool undefined : {true, false}) {
        for (const int accumulated : {1, 2}) {
            expect_same_bits({.reducer = {.find_unused_parameters = true},
                              .accumulated = accumulated,
                              .undefined = undefined,
                              .always_takes_side = false});
        }
    }
}

TEST(TorchLogicalRanks, DoSoWithBuffersOfTheirOwnAndAStaticGraph) {
    expect_same_bits({.broadcast_buffers = false});
    expect_same_bits({.reducer = {.static_graph = true}, .undefined = true});
}

TEST(TorchLogicalRanks, GoOnFromACheckpointAtAnotherNumberOfRanks) {
    auto group = join_group();
    const int pid = group.all_reduce(group.rank() == 0 ? ::getpid() : 0);
    const fs::path dir = fs::temp_directory_path() / ("ddp-torch-" + std::to_string(pid));
    torch::Tensor whole;
    in_groups(group, [&](ProcessGroup& first) {
        if (first.size() == 1) whole = train(first, {.steps = 5});
    });
    for (int begins = 1; begins <= std::min(group.size(), 4); begins *= 2) {
        const fs::path begun = dir / std::to_string(begins);
        in_groups(group, [&](ProcessGroup& some) {
            if (some.size() == begins) train(some, {.steps = 2, .checkpoint = begun});
        });
        in_groups(group, [&](ProcessGroup& some) {
            const fs::path run = dir / (std::to_string(begins) + "-" + std::to_string(some.size()));
            if (some.rank() == 0) fs::copy(begun, run, fs::copy_options::recursive);
            some.barrier().wait();
            const torch::Tensor bits = train(some, {.steps = 5, .checkpoint = run});
            if (some.rank() != 0) return;
            EXPECT_TRUE(torch::equal(bits, whole))
                << begins << " ranks, then " << some.size() << ": " << (bits - whole).abs().max();
        });
    }
    if (group.rank() == 0) fs::remove_all(dir);
}

TEST(TorchLogicalRanks, DrawOtherRandomNumbersEach) {
    auto group = join_group();
    in_groups(group, [&](ProcessGroup& some) {
        torch::manual_seed(3);
        TwoLayers net;
        DistributedDataParallel model{net, some, {.reducer = {.logical_ranks = logical_ranks}}};
        auto drawn = torch::zeros({4});
        bool averaged = false;
        while (!averaged) {
            const auto logical = static_cast<std::int64_t>(model.reducer().logical_rank().index);
            drawn[logical] = torch::rand({1})[0];
            model(rows(0, 1)).sum().backward();
            averaged = model.averaged();
        }
        libtorch::all_reduce(some, drawn);
        for (std::uint64_t logical = 0; logical < 4; ++logical) {
            torch::manual_seed(3 + 1 + logical);
            EXPECT_EQ(drawn[static_cast<std::int64_t>(logical)].item<float>(),
                      torch::rand({1}).item<float>());
        }
    });
}

TEST(TorchLogicalRanks, AreRefusedWhereTheRanksCannotShareThem) {
    auto group = join_group();
    TwoLayers net;
    const auto wrap = [&] {
        DistributedDataParallel model{
            net, group, {.reducer = {.logical_ranks = 3 * static_cast<std::size_t>(group.size())}}};
    };
    EXPECT_THAT(error_of<UsageError>(wrap), HasSubstr("logical_ranks is"));
}

}  // namespace
