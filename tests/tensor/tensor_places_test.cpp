// Tensors on virtual CPU devices and on GPUs that are host memory, and what is the GPUs' alone.
#include "support/host_device_api.hpp"
#include "tensor/tensor_suite.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

namespace ddp::testing {
namespace {

using ::testing::HasSubstr;

constexpr Device gpu{DeviceType::cuda, 0};
constexpr Device other_gpu{DeviceType::cuda, 1};

device::DeviceApi* two_gpus() { return new HostDeviceApi(2); }
// Whatever a tensor did not wait for comes too late.
device::DeviceApi* slow_gpus() {
    auto* const api = new HostDeviceApi(2);
    api->set_launch_delay(std::chrono::microseconds{200});
    return api;
}

INSTANTIATE_TEST_SUITE_P(Cpu, TensorSuite,
                         ::testing::Values(Place{"cpu", {}, {DeviceType::cpu, 2}},
                                           Place{"cpu:1", {DeviceType::cpu, 1}, {}}));
INSTANTIATE_TEST_SUITE_P(Gpu, TensorSuite,
                         ::testing::Values(Place{"cuda:0", gpu, other_gpu, &two_gpus},
                                           Place{"cuda:1", other_gpu, {}, &two_gpus},
                                           Place{"cuda:1, slow", other_gpu, gpu, &slow_gpus}));

class TensorOnGpu : public ::testing::Test {
protected:
    TensorOnGpu() { device::use_device_api(&api); }
    ~TensorOnGpu() override { device::use_device_api(nullptr); }
    HostDeviceApi api{2};
};

TEST_F(TensorOnGpu, GivesItsMemoryBack) {
    {
        const Tensor one = ones({1000}, {.device = other_gpu});
        const auto pieces = one.chunk(3);
        EXPECT_EQ(api.allocated(), 4000U) << "pieces share it";
        EXPECT_EQ(api.device_of(one.data()), other_gpu);
        static_cast<void>(to_string(one.to(gpu, DType::float64)));
    }
    EXPECT_EQ(api.allocated(), 0U);
}

TEST_F(TensorOnGpu, LeavesTheCurrentGpuAsItIs) {
    api.use(1);
    const Tensor made = full({3}, 2, {.device = gpu});
    EXPECT_EQ(made.to(other_gpu).to(Device{}).as<float>()[2], 2);
    EXPECT_EQ(cat({made, made}).numel(), 6U);
    EXPECT_EQ(api.current(), 1);
}

TEST_F(TensorOnGpu, WaitsForWhatIsOnTheDefaultStream) {
    const Tensor source = ones({4}, {.device = gpu});
    api.set_launch_delay(std::chrono::milliseconds{20});
    api.use(0);
    api.scale(source, 3, Stream{});
    EXPECT_EQ(source.to(other_gpu).to(Device{}).as<float>()[0], 3);
}

TEST_F(TensorOnGpu, SaysHowMuchMemoryIsMissingWhere) {
    api.set_memory(1000);
    try {
        static_cast<void>(zeros({1000}, {.device = other_gpu}));
        ADD_FAILURE() << "there was memory";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOMEM);
        EXPECT_THAT(error.what(), HasSubstr("allocate 4000 bytes on cuda:1"));
    }
    EXPECT_EQ(zeros({100}, {.device = other_gpu}).numel(), 100U);
}

TEST_F(TensorOnGpu, PrintsALargeTensorWithoutASecondOneOnTheGpu) {
    api.set_memory(45'000);
    const Tensor large = ones({100, 100}, {.device = gpu});
    EXPECT_THAT(to_string(large), HasSubstr("[1., 1., 1.,  ..., 1., 1., 1.]"));
}

TEST_F(TensorOnGpu, PinnedMemoryIsTheHosts) {
    const Tensor pinned = empty({10}, {.pinned = true});
    EXPECT_EQ(pinned.device(), Device{});
    EXPECT_EQ(api.allocated(), 40U);
    const Tensor copied = ones({10}).pin_memory();
    EXPECT_EQ(api.allocated(), 80U);
    EXPECT_TRUE(equal(copied.to(gpu), ones({10})));
    EXPECT_THROW(static_cast<void>(empty({1}, {.device = gpu, .pinned = true})), UsageError);
}

TEST_F(TensorOnGpu, OnlyTheHostsMemoryIsPinnedAndItStaysOnItsDevice) {
    try {
        static_cast<void>(ones({10}, {.device = gpu}).pin_memory());
        ADD_FAILURE() << "it is on the GPU";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("pin_memory: the tensor is on cuda:0"));
    }
    ::setenv("DDP_CPU_DEVICES", "2", 1);
    const Device second{DeviceType::cpu, 1};
    const Tensor pinned = ones({10}, {.device = second}).pin_memory();
    ::unsetenv("DDP_CPU_DEVICES");
    EXPECT_EQ(pinned.device(), second);
    EXPECT_EQ(api.allocated(), 40U);
}

TEST_F(TensorOnGpu, PinnedMemoryNeedsAGpu) {
    api.set_reason("no driver");
    try {
        static_cast<void>(ones({10}).pin_memory());
        ADD_FAILURE() << "for what?";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("there is none (no driver)"));
    }
}

TEST_F(TensorOnGpu, ScopeMakesItCurrentAndUndoesIt) {
    {
        const DeviceScope scope{other_gpu};
        EXPECT_EQ(api.current(), 1);
        const DeviceScope on_the_cpu{Device{}};
        EXPECT_EQ(api.current(), 1) << "the CPU's scope leaves CUDA alone";
        EXPECT_EQ(DeviceScope::current(), Device{});
    }
    EXPECT_EQ(api.current(), 0);
    EXPECT_EQ(DeviceScope::current(), Device{});
}

}  // namespace
}  // namespace ddp::testing
