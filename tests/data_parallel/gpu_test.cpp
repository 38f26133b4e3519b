// DataParallel on GPUs, over the stand-in that runs on the host: the same bits as on the CPU.
#include <gtest/gtest.h>

#include <ddp/data_parallel.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstdint>

#include "data_parallel/linear_model.hpp"
#include "support/stand_in_gpus.hpp"
#include "tensor/device/device_api.hpp"

namespace {

using namespace ddp;
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
