// DataParallel on GPUs, over the stand-in that runs on the host: the same bits as on the CPU.
#include <gtest/gtest.h>

#include <ddp/data_parallel.hpp>
#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "data_parallel/cpu_devices.hpp"
#include "data_parallel/linear_model.hpp"
#include "support/stand_in_gpus.hpp"
#include "tensor/device/device_api.hpp"

namespace {

using namespace ddp;
using ddp::testing::CpuDevices;
using ddp::testing::LinearModel;

class DataParallelOnGpus : public ::testing::TestWithParam<int> {
protected:
    DataParallelOnGpus() { device::use_device_api(&api_); }
    ~DataParallelOnGpus() override { device::use_device_api(nullptr); }
    static Device gpu(int index) { return {DeviceType::cuda, index}; }

    ddp::testing::StandInGpus api_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Gpus, DataParallelOnGpus, ::testing::Values(1, 2, 3));

}  // namespace

TEST_P(DataParallelOnGpus, GivesTheBitsOfTheCpuAndFreesWhatItTook) {
    const Tensor batch = randn({30, 5}, 3, {.device = Device{}});
    const Tensor gradient = randn({30, 2}, 4, {.device = Device{}});
    LinearModel on_cpu{5, 2, Device{}};
    const std::size_t before = api_.allocated();
    {
        LinearModel module{5, 2, gpu(0)};
        ddp::DataParallel model{module};
        ASSERT_EQ(model.devices().size(), static_cast<std::size_t>(GetParam()));
        EXPECT_EQ(model.devices().back(), gpu(GetParam() - 1));
        const Tensor output = model.forward(batch);
        EXPECT_EQ(output.device(), gpu(0));
        EXPECT_TRUE(equal(output, on_cpu.forward(batch)));
        const Tensor input_gradient = model.backward(gradient);
        EXPECT_TRUE(equal(input_gradient, on_cpu.backward(gradient)));
        const Tolerance rounding{.relative = 1e-5, .absolute = 1e-5};
        EXPECT_TRUE(allclose(module.weight_grad.to(Device{}), on_cpu.weight_grad, rounding));
        EXPECT_TRUE(allclose(module.bias_grad.to(Device{}), on_cpu.bias_grad, rounding));
        EXPECT_GT(api_.allocated(), before);
    }
#ifdef DDP_STANDIN_CUDA
    EXPECT_EQ(standin_cuda::staged_copies(), 0U) << "by way of the host";
#endif
    EXPECT_EQ(api_.allocated(), before);
}

// Of more bytes than are brought at a time, after fewer; by two shares of the work.
TEST_P(DataParallelOnGpus, AddsGradientsInTheOrderOfTheCpus) {
    constexpr std::int64_t large = 600'000;
    const auto sum_on = [&](const std::vector<Device>& devices) {
        std::vector<Tensor> memory;
        std::vector<std::vector<Parameter>> parameters;
        std::uint64_t seed = 1;
        for (const Device& device : devices) {
            auto& own = parameters.emplace_back();
            for (const std::int64_t size : {std::int64_t{3}, std::int64_t{5}, large}) {
                const Tensor value = memory.emplace_back(zeros({size}, {.device = device}));
                const Tensor grad =
                    memory.emplace_back(randn({size}, seed++, {.device = Device{}}).to(device));
                own.push_back({std::to_string(size), value.view(), grad.view()});
            }
        }
        std::vector<data_parallel::ModuleState> states;
        for (auto& own : parameters) states.push_back({own, {}});
        for (const std::size_t share : {0U, 1U}) data_parallel::add_gradients(states, share, 2);
        std::vector<Tensor> sums;
        for (const Parameter& parameter : parameters.front()) {
            sums.push_back(clone(parameter.grad, {.device = Device{}}));
        }
        return sums;
    };
    std::vector<Device> cpus, gpus;
    const CpuDevices some(GetParam());
    for (int i = 0; i < GetParam(); ++i) {
        cpus.push_back({DeviceType::cpu, i});
        gpus.push_back(gpu(i));
    }
    const std::size_t before = api_.allocated();
    const auto wanted = sum_on(cpus), got = sum_on(gpus);
    for (std::size_t p = 0; p < wanted.size(); ++p) EXPECT_TRUE(equal(got[p], wanted[p]));
    EXPECT_EQ(api_.allocated(), before);
}

#ifdef DDP_STANDIN_CUDA
// In a process of its own, whose GPU is of no more use.
TEST_P(DataParallelOnGpus, SaysThatAGpuHasFailed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto add_on_a_broken_gpu = [&] {
        const Tensor value = zeros({3}, {.device = gpu(0)}), grad = zeros({3}, {.device = gpu(0)});
        std::vector<Parameter> own{{"weight", value.view(), grad.view()}};
        const std::vector<data_parallel::ModuleState> states{{own, {}}, {own, {}}};
        standin_cuda::break_device(0, cudaErrorIllegalAddress);
        try {
            data_parallel::add_gradients(states, 0, 1);
        } catch (const BackendError& error) {
            std::fputs(error.what(), stderr);
            std::_Exit(0);
        }
        std::_Exit(1);
    };
    EXPECT_EXIT(add_on_a_broken_gpu(), ::testing::ExitedWithCode(0), "illegal memory access");
}
#endif
