// A wrapped module against the same module alone, on 1 to 8 devices: outputs, gradients, buffers,
// and what stays between calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddp/data_parallel.hpp>
#include <ddp/error.hpp>
#include <ddp/memory.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data_parallel/cpu_devices.hpp"
#include "data_parallel/linear_model.hpp"

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::ElementsAre;

constexpr std::int64_t inputs = 5;
constexpr std::int64_t outputs = 2;

LinearModel make_model(int device = 0) { return {inputs, outputs, cpu(device)}; }

// The sum in ddp's order, the balanced tree ((0+1)+(2+3))+...
Tensor tree_sum(std::span<const Tensor> terms) {
    if (terms.size() == 1) return terms[0].to(cpu(0)).clone();
    std::size_t left = 1;
    while (2 * left < terms.size()) left *= 2;
    const Tensor sum = tree_sum(terms.first(left));
    const Tensor right = tree_sum(terms.subspan(left));
    for (std::size_t i = 0; i < sum.numel(); ++i) sum.as<float>()[i] += right.as<float>()[i];
    return sum;
}

class DataParallelOn : public ::testing::TestWithParam<int> {
protected:
    int devices() const { return GetParam(); }
    CpuDevices cpus_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Devices, DataParallelOn, ::testing::Range(1, 9));

class DataParallel : public ::testing::Test {
protected:
    CpuDevices cpus_{8};
};

TEST_P(DataParallelOn, GivesTheOutputsOfTheModuleAlone) {
    LinearModel wrapped = make_model();
    LinearModel alone = make_model();
    ddp::DataParallel model{wrapped};
    EXPECT_EQ(model.devices().size(), static_cast<std::size_t>(devices()));
    for (const std::int64_t rows : {30, 10, 1, 7, 0}) {
        const Tensor batch = randn({rows, inputs}, 3);
        const Tensor output = model.forward(batch);
        EXPECT_EQ(output.device(), cpu(0));
        EXPECT_TRUE(equal(output, alone.forward(batch))) << rows << " rows";
    }
}

TEST_P(DataParallelOn, AddsUpTheGradientsOfThePiecesInTheTreesOrder) {
    LinearModel wrapped = make_model();
    LinearModel alone = make_model();
    ddp::DataParallel model{wrapped};
    for (const std::int64_t rows : {30, 10, 3}) {
        const Tensor batch = randn({rows, inputs}, 4);
        const Tensor gradient = randn({rows, outputs}, 5);
        std::vector<Tensor> weights;
        std::vector<Tensor> biases;
        const auto pieces = scatter(std::pair(batch, gradient), model.devices());
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            LinearModel part = make_model();
            if (i == 0) {  // the module's own gradients go on from what they are
                copy_elements(wrapped.weight_grad, part.weight_grad);
                copy_elements(wrapped.bias_grad, part.bias_grad);
            }
            part.forward(pieces[i].first);
            part.backward(pieces[i].second);
            weights.push_back(part.weight_grad);
            biases.push_back(part.bias_grad);
        }

        model.forward(batch);
        const Tensor input_gradient = model.backward(gradient);
        alone.forward(batch);
        EXPECT_TRUE(equal(input_gradient, alone.backward(gradient)));
        EXPECT_TRUE(equal(wrapped.weight_grad, tree_sum(weights))) << rows << " rows";
        EXPECT_TRUE(equal(wrapped.bias_grad, tree_sum(biases))) << rows << " rows";
        const Tolerance rounding{.relative = 1e-5, .absolute = 1e-5};
        EXPECT_TRUE(allclose(wrapped.weight_grad, alone.weight_grad, rounding));
        EXPECT_TRUE(allclose(wrapped.bias_grad, alone.bias_grad, rounding));
    }
}

TEST_P(DataParallelOn, TakesInputsFromAnyDeviceAndGathersWhereItIsTold) {
    const int last = devices() - 1;
    LinearModel wrapped = make_model();
    LinearModel alone = make_model();
    ddp::DataParallel model{wrapped, {.output_device = last}};
    const Tensor batch = randn({30, inputs}, 3, {.device = cpu(last)});
    const Tensor output = model.forward(batch);
    EXPECT_EQ(output.device(), cpu(last));
    EXPECT_TRUE(equal(output, alone.forward(batch)));
}

TEST_P(DataParallelOn, KeepsWhatReplica0DoesToBuffersAndDropsTheOthers) {
    LinearModel wrapped = make_model();
    ddp::DataParallel model{wrapped};
    const Tensor batch = zeros({16, inputs});
    const std::int64_t first_rows = scatter(batch, model.devices()).front().shape()[0];
    for (int forward = 1; forward <= 3; ++forward) {
        model.forward(batch);
        EXPECT_EQ(wrapped.rows_seen.item<std::int64_t>(), forward * first_rows);
    }
}

TEST_F(DataParallel, TakesTheDevicesThatItIsGiven) {
    LinearModel wrapped = make_model(3);
    ddp::DataParallel model{wrapped, {.device_ids = {3, 1}}};
    EXPECT_THAT(std::vector(model.devices().begin(), model.devices().end()),
                ElementsAre(cpu(3), cpu(1)));
    EXPECT_EQ(model.output_device(), cpu(3));
    EXPECT_EQ(model.forward(zeros({4, inputs})).device(), cpu(3));
    EXPECT_EQ(wrapped.rows_seen.item<std::int64_t>(), 2);
}

TEST_F(DataParallel, SeesChangedParametersAtTheNextForward) {
    LinearModel wrapped = make_model();
    LinearModel alone = make_model();
    ddp::DataParallel model{wrapped};
    const Tensor batch = randn({30, inputs}, 3);
    model.forward(batch);
    wrapped.weight.as<float>()[0] = alone.weight.as<float>()[0] = 2;
    EXPECT_TRUE(equal(model.forward(batch), alone.forward(batch)));
}

TEST_F(DataParallel, CopiesParametersOnlyWhenToldThatTheyChanged) {
    LinearModel wrapped = make_model();
    LinearModel before = make_model();
    LinearModel after = make_model();
    ddp::DataParallel model{wrapped, {.copy_parameters = CopyParameters::when_changed}};
    const Tensor row = randn({1, inputs}, 3);
    const Tensor batch = cat({row, row, row, row, row, row, row, row});
    model.forward(batch.narrow(0, {0, 3}));  // the last five replicas have no parameters yet
    EXPECT_TRUE(equal(model.forward(batch).narrow(0, {7, 1}), before.forward(row)));
    wrapped.weight.as<float>()[0] = after.weight.as<float>()[0] = 2;
    const Tensor stale = model.forward(batch);
    EXPECT_TRUE(equal(stale.narrow(0, {0, 1}), after.forward(row)));
    EXPECT_TRUE(equal(stale.narrow(0, {1, 1}), before.forward(row)));
    model.parameters_changed();
    model.forward(batch.narrow(0, {0, 2}));  // and the others hear of it later
    const Tensor fresh = model.forward(batch);
    for (std::int64_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(equal(fresh.narrow(0, {i, 1}), after.forward(row))) << i;
    }
}

TEST_F(DataParallel, ReplicatesWhatCanBeAppliedAtOnce) {
    LinearModel module = make_model();
    LinearModel alone = make_model();
    const auto devices = first_cpus(3);
    auto replicas = replicate(module, std::span<const Device>(devices));
    const Tensor batch = randn({7, inputs}, 3);
    const auto parts = scatter(std::tuple(batch), devices);
    const auto apply = [&] {
        return parallel_apply(replicas, std::span<const std::tuple<Tensor>>(parts));
    };
    EXPECT_TRUE(equal(gather(apply(), cpu(0)), alone.forward(batch)));
    module.weight.as<float>()[0] = alone.weight.as<float>()[0] = 2;
    replicas.parameters_changed();
    replicas.update(parts.size());
    EXPECT_TRUE(equal(gather(apply(), cpu(0)), alone.forward(batch)));
}

// Two inputs and a number in, a tuple out; two gradients back.
class Pair {
public:
    std::span<Parameter> parameters() { return {}; }
    Pair replicate(const Device&) const { return {}; }
    std::tuple<Tensor, Tensor, int> forward(const Tensor& a, const std::vector<Tensor>& b,
                                            int number) {
        return {a.clone(), tensor({static_cast<float>(b[0].shape()[0])}).view(Shape{}), number};
    }
    void backward(const Tensor& of_rows, const Tensor& of_scalar) {
        rows = of_rows;
        scalar = of_scalar;
    }
    Tensor rows, scalar;
};

TEST_F(DataParallel, PassesSeveralInputsAndGradients) {
    Pair pair;
    ddp::DataParallel model{pair, {.device_ids = {0, 1, 2}}};
    const Tensor a = randn({10, 2}, 3);
    const auto [rows, counts, numbers] = model.forward(a, std::vector{a.narrow(1, {0, 1})}, 7);
    EXPECT_TRUE(equal(rows, a));
    EXPECT_TRUE(equal(counts, tensor({4.F, 4.F, 2.F})));
    EXPECT_THAT(numbers, ElementsAre(7, 7, 7));
    model.backward(a, counts);
    EXPECT_TRUE(equal(pair.rows, a.narrow(0, {0, 4})));
    EXPECT_EQ(pair.scalar.shape(), Shape{});
    EXPECT_EQ(pair.scalar.item<float>(), 4);
    static_cast<void>(model.forward(a, std::vector{a}, 7));
    EXPECT_THROW(model.backward(a, ones({3, 2})), UsageError);
}

TEST_F(DataParallel, LeavesOutFrozenParameters) {
    LinearModel wrapped = make_model();
    LinearModel alone = make_model();
    wrapped.parameters()[1].grad = {};  // the replicas' have one, which stays theirs
    ddp::DataParallel model{wrapped, {.device_ids = {0, 1, 2}}};
    const Tensor batch = randn({9, inputs}, 3);
    const Tensor gradient = randn({9, outputs}, 4);
    model.forward(batch);
    model.backward(gradient);
    alone.forward(batch);
    alone.backward(gradient);
    const Tolerance rounding{.relative = 1e-5, .absolute = 1e-5};
    EXPECT_TRUE(allclose(wrapped.weight_grad, alone.weight_grad, rounding));
    alone.bias_grad = zeros_like(alone.bias_grad);  // of replica 0's rows alone, by the module
    alone.forward(batch.narrow(0, {0, 3}));
    alone.backward(gradient.narrow(0, {0, 3}));
    EXPECT_TRUE(allclose(wrapped.bias_grad, alone.bias_grad, rounding));
}

TEST_F(DataParallel, GivesTheModuleAndPrintsIt) {
    LinearModel wrapped = make_model();
    ddp::DataParallel model{wrapped};
    EXPECT_EQ(&model.module(), &wrapped);
    EXPECT_EQ(model.parameters().data(), wrapped.parameters().data());
    std::ostringstream text;
    text << model;
    EXPECT_EQ(text.str(),
              "DataParallel((module): Model((fc): Linear(in_features=5, out_features=2, "
              "bias=True)))");
}

TEST_F(DataParallel, KeepsMemoryAndThreadsOverTenThousandShortBatches) {
    LinearModel wrapped = make_model();
    ddp::DataParallel model{wrapped};
    const auto threads = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    const auto step = [&](std::int64_t rows) {
        model.forward(randn({rows, inputs}, 3));
        model.backward(zeros({rows, outputs}));
    };
    step(8);
    const auto threads_before = threads();
    std::vector<std::size_t> before;
    for (const Device& device : model.devices()) before.push_back(memory_allocated(device));
    for (std::int64_t i = 0; i < 10000; ++i) step(1 + i % 3);
    step(8);
    EXPECT_EQ(threads(), threads_before);
    for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(memory_allocated(model.devices()[i]), before[i]);
    }
}

}  // namespace
