// The loss computed in the replicas: the same numbers as the loss of the gathered output, and
// nothing but numbers gathered.
#include <gtest/gtest.h>

#include <ddp/data_parallel.hpp>
#include <ddp/error.hpp>
#include <ddp/memory.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstdint>

#include "data_parallel/cpu_devices.hpp"
#include "data_parallel/linear_model.hpp"

namespace {

using namespace ddp;
using namespace ddp::testing;

constexpr std::int64_t features = 5;
constexpr std::int64_t classes = 64;

// The mean over rows of half the squared distance.
LossShare squared_distance(const Tensor& output, const Tensor& target, std::size_t rows) {
    const Tensor gradient = empty_like(output);
    double loss = 0;
    for (std::size_t i = 0; i < output.numel(); ++i) {
        const float distance = output.as<float>()[i] - target.as<float>()[i];
        loss += 0.5 * distance * distance;
        gradient.as<float>()[i] = distance / static_cast<float>(rows);
    }
    return {loss / static_cast<double>(rows), gradient};
}

class LossInReplica : public ::testing::TestWithParam<int> {
protected:
    CpuDevices cpus_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Devices, LossInReplica, ::testing::Values(1, 2, 3, 8));

}  // namespace

TEST_P(LossInReplica, GivesTheLossAndGradientsOfTheGatheredOutput) {
    LinearModel one{features, classes, cpu(0)};
    LinearModel other{features, classes, cpu(0)};
    ddp::DataParallel gathers{one};
    ddp::DataParallel shares{other};
    for (const std::int64_t rows : {30, 10, 1}) {
        const Tensor batch = randn({rows, features}, 3);
        const Tensor targets = randn({rows, classes}, 4);
        const Tensor output = gathers.forward(batch);
        const auto whole = squared_distance(output, targets, static_cast<std::size_t>(rows));
        gathers.backward(whole.gradient);
        EXPECT_NEAR(shares.forward_loss(squared_distance, targets, batch), whole.loss,
                    1e-12 * whole.loss);
        shares.backward_loss();
        EXPECT_TRUE(equal(one.weight_grad, other.weight_grad)) << rows << " rows";
        EXPECT_TRUE(equal(one.bias_grad, other.bias_grad)) << rows << " rows";
    }
}

// On cpu:1 to cpu:4; the batch is on cpu, and so is what LinearModel computes with.
TEST(LossInReplicaMemory, OfTheFirstDeviceIsThatOfTheOthers) {
    constexpr std::int64_t rows = 2400;
    const CpuDevices cpus{5};
    const Tensor batch = zeros({rows, features});
    const Tensor targets = zeros({rows, classes});
    LinearModel module{features, classes, cpu(1)};
    ddp::DataParallel model{module, {.device_ids = {1, 2, 3, 4}}};
    // Peak bytes of cpu:1 against those of cpu:4.
    const auto imbalance_of = [&](const auto& step) {
        model.forward(zeros({8, features}));
        for (const Device& device : model.devices()) reset_peak_memory_stats(device);
        step();
        EXPECT_GT(max_memory_allocated(cpu(4)), rows / 4 * classes * sizeof(float));
        return static_cast<double>(max_memory_allocated(cpu(1))) /
               static_cast<double>(max_memory_allocated(cpu(4)));
    };
    EXPECT_GT(imbalance_of([&] {
                  const Tensor output = model.forward(batch);
                  model.backward(squared_distance(output, targets.to(cpu(1)), rows).gradient);
              }),
              2);
    EXPECT_LT(imbalance_of([&] {
                  model.forward_loss(squared_distance, targets, batch);
                  model.backward_loss();
              }),
              1.01);
}

TEST_P(LossInReplica, BackwardGoesWithItsForward) {
    LinearModel module{features, classes, cpu(0)};
    ddp::DataParallel model{module};
    EXPECT_THROW(model.backward_loss(), UsageError);
    EXPECT_THROW(model.backward(zeros({4, classes})), UsageError);
    model.forward(zeros({4, features}));
    EXPECT_THROW(model.backward_loss(), UsageError);
    model.forward_loss(squared_distance, zeros({4, classes}), zeros({4, features}));
    EXPECT_THROW(model.backward(zeros({4, classes})), UsageError);
    model.backward_loss();
    EXPECT_THROW(model.backward_loss(), UsageError);
}
