// A run that is saved and goes on at another number of ranks: the random state of all logical ranks
// goes along, so that it has the bits of a run that was not interrupted.
#include <ddp/checkpoint.hpp>
#include <ddp/distributed_data_parallel.hpp>
#include <ddp/testing.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace ddp;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::HasSubstr;

// Its gradients are random numbers, drawn from two streams.
class NoisyNet {
public:
    NoisyNet() = default;
    NoisyNet(const NoisyNet&) = delete;
    NoisyNet& operator=(const NoisyNet&) = delete;

    std::span<Parameter> parameters() { return parameters_; }
    void on_gradient_ready(GradientReady hook) { hook_ = std::move(hook); }
    std::vector<NamedTensor> random_state() { return {{"a", first_}, {"b", second_}}; }

    void forward(std::size_t logical_rank) {
        if (first_[0] == 0) first_[0] = static_cast<std::int64_t>(logical_rank) + 1;
        if (second_[1] == 0) second_[1] = static_cast<std::int32_t>(7 * logical_rank) + 3;
        first_[0] = first_[0] * 1103515245 % 2147483647;
        second_[1] = static_cast<std::int32_t>(std::int64_t{second_[1]} * 48271 % 2147483647);
    }
    void backward() {
        for (float& grad : parameters_[0].grad.as<float>()) {
            grad += static_cast<float>(first_[0] % 9973 + second_[1] % 9967) / 777.0F;
        }
        hook_(0, Stream{});
    }
    void step() {
        const auto grads = parameters_[0].grad.as<float>();
        for (std::size_t i = 0; i < grads.size(); ++i) {
            value_[i] -= std::exchange(grads[i], 0.0F);
        }
    }
    const std::vector<float>& value() const { return value_; }

private:
    std::vector<float> value_ = std::vector<float>(3);
    std::vector<float> grad_ = std::vector<float>(3);
    std::vector<Parameter> parameters_{{"p", value_, grad_}};
    std::vector<std::int64_t> first_ = std::vector<std::int64_t>(1);
    std::vector<std::int32_t> second_ = std::vector<std::int32_t>(2);
    GradientReady hook_;
};

struct Nothing {
    std::vector<NamedTensor> state_dict() { return {}; }
};

// From the checkpoint in `dir` (none: from the start) until so many steps are done; saves them.
std::vector<float> train(ProcessGroup& group, const fs::path& dir, int steps) {
    NoisyNet net;
    Nothing optimizer;
    DistributedDataParallel model{net, group, {.logical_ranks = 8}};
    CheckpointManager checkpoints{dir, group};
    for (int step = checkpoints.load_latest(model, optimizer); step < steps; ++step) {
        do model.forward(model.reducer().logical_rank().index);
        while (!model.backward());
        net.step();
        checkpoints.save(step + 1, model, optimizer);
    }
    return net.value();
}

TEST(StateDict, CarriesTheRandomStateOfAllLogicalRanksToAnotherNumberOfRanks) {
    const std::string dir = ddp::testing::made_once([] {
        std::string name = (fs::temp_directory_path() / "ddp-state-XXXXXX").string();
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
        return name;
    });
    run_ranks(4, [&](ProcessGroup& group) {
        const std::vector<float> whole = train(group, {}, 5);
        for (const int fewer : {1, 2, 4}) {
            std::vector<int> members(static_cast<std::size_t>(fewer));
            std::iota(members.begin(), members.end(), 0);
            auto some = group.new_group(members);
            const fs::path run = fs::path(dir) / std::to_string(fewer);
            train(group, run, 1);
            if (some) train(*some, run, 3);
            group.barrier().wait();
            EXPECT_EQ(train(group, run, 5), whole) << fewer << " ranks in between";
        }
    });
    fs::remove_all(dir);
}

TEST(StateDict, HasRandomStateWhenThereAreLogicalRanksOnly) {
    run_ranks(2, [](ProcessGroup& group) {
        NoisyNet net;
        {
            DistributedDataParallel model{net, group};
            EXPECT_TRUE(model.state_dict().empty());
        }
        DistributedDataParallel model{net, group, {.logical_ranks = 4}};
        const auto state = model.state_dict();
        ASSERT_EQ(state.size(), 2U);
        EXPECT_EQ(state[0].name, "random_state.a");
        EXPECT_EQ(state[0].tensor.shape, Shape({4, 1}));
        EXPECT_EQ(state[1].name, "random_state.b");
        EXPECT_EQ(state[1].tensor.shape, Shape({4, 2}));
        EXPECT_EQ(state[1].tensor.dtype, DType::int32);
    });
}

TEST(StateDict, IsRefusedBetweenTurns) {
    run_ranks(1, [](ProcessGroup& group) {
        NoisyNet net;
        DistributedDataParallel model{net, group, {.logical_ranks = 2}};
        model.forward(0);
        EXPECT_FALSE(model.backward());
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(model.state_dict()); }),
                    HasSubstr("before all logical ranks of this rank had their turn"));
        model.forward(1);
        EXPECT_TRUE(model.backward());
        EXPECT_EQ(model.state_dict().size(), 2U);
    });
}

TEST(Buffers, OfAllTurnsBeginAsTheyAreAtTheFirstForward) {
    struct BufferedNet : ToyNet {
        using ToyNet::ToyNet;
        std::vector<NamedTensor> buffers() { return {{"running", running}}; }
        std::vector<float> running = std::vector<float>(2);
    };
    run_ranks(1, [](ProcessGroup& group) {
        BufferedNet net({4});
        DistributedDataParallel model{net, group, {.broadcast_buffers = false, .logical_ranks = 2}};
        net.running[1] = 5;
        model.forward(1.0F);
        net.running[1] = 6;
        EXPECT_FALSE(model.backward(1.0F));
        EXPECT_EQ(net.running[1], 5.0F);
        model.forward(1.0F);
        EXPECT_TRUE(model.backward(1.0F));
        EXPECT_EQ(net.running[1], 6.0F);
    });
}

}  // namespace
