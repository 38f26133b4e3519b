// Names of devices, which there are, and the default one of a thread.
#include <ddp/device.hpp>

#include "support/host_device_api.hpp"
#include "tensor/device/device.hpp"
#include "tensor/tensor_places.hpp"

#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ddp::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Device first_gpu{DeviceType::cuda, 0};

template <class Function>
std::string usage_error_of(const Function& function) {
    try {
        function();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no UsageError";
}

std::string parse_error(const std::string& text) {
    return usage_error_of([&] { static_cast<void>(Device::parse(text)); });
}

TEST(Device, IsParsedFromWhatItPrints) {
    for (const char* name : {"cpu", "cpu:3", "cuda:0", "cuda:1", "cuda:15", "cuda:9999"}) {
        EXPECT_EQ(to_string(Device::parse(name)), name);
    }
    EXPECT_EQ(Device::parse("cuda"), first_gpu);
    EXPECT_EQ(Device::parse("cpu:0"), Device{});
    std::ostringstream out;
    out << Device::parse("cuda:1") << " " << Shape{15, 5};
    EXPECT_EQ(out.str(), "cuda:1 [15, 5]");
}

TEST(Device, KnowsWhatIsMeant) {
    for (const char* slip : {"cuda: 0", "CUDA:0", "gpu:0", "cuda0", "cuda:", " cuda:0", "cuda:00",
                             "GPU 0", "Cuda", "gpu", "cuda::0"}) {
        EXPECT_EQ(parse_error(slip), "device \"" + std::string(slip) + "\": did you mean cuda:0?");
    }
    EXPECT_THAT(parse_error("cpu:07"), HasSubstr("did you mean cpu:7?"));
    EXPECT_THAT(parse_error("CPU"), HasSubstr("did you mean cpu?"));
}

TEST(Device, RefusesWhatNoDeviceIsCalled) {
    for (const char* name : {"", "cuda:-1", "cuda:99999999999", "cuda:10000", "tpu:0", "0", "-",
                             "cuda:0x1", "cuda:1.5", "cuda:1e"}) {
        const std::string error = parse_error(name);
        EXPECT_THAT(error, HasSubstr("device \"" + std::string(name) + "\": "));
        EXPECT_THAT(error, AllOf(HasSubstr("no such name"), HasSubstr("cuda:1"))) << name;
    }
}

class Devices : public ::testing::Test {
protected:
    void have_gpus(int count) {
        device::use_device_api(nullptr);
        api_.reset();
        api_ = std::make_unique<HostDeviceApi>(count);
        device::use_device_api(api_.get());
    }
    void SetUp() override { have_gpus(0); }
    void TearDown() override { device::use_device_api(nullptr); }

private:
    const Variable unset_{"DDP_CPU_DEVICES", nullptr};
    std::unique_ptr<HostDeviceApi> api_;
};

TEST_F(Devices, AreTheGpusWhereThereAreSome) {
    have_gpus(2);
    EXPECT_TRUE(is_available());
    EXPECT_EQ(device_count(), 2);
    EXPECT_EQ(devices(), (std::vector<Device>{first_gpu, {DeviceType::cuda, 1}}));
    EXPECT_EQ(devices(DeviceType::cpu), std::vector<Device>{Device{}});
}

TEST_F(Devices, CudaIsTheScopesOrTheRanks) {
    have_gpus(4);
    EXPECT_EQ(Device::parse("cuda"), first_gpu);
    device::set_gpu_of_rank(2);
    EXPECT_EQ(Device::parse("cuda"), (Device{DeviceType::cuda, 2}));
    EXPECT_EQ(Device::parse("cuda:0"), first_gpu);
    EXPECT_EQ(DeviceScope::current(), Device{}) << "a new tensor that names no device";
    {
        const DeviceScope scope(Device{DeviceType::cuda, 3});
        EXPECT_EQ(Device::parse("cuda"), (Device{DeviceType::cuda, 3}));
        const DeviceScope cpu(Device{});
        EXPECT_EQ(Device::parse("cuda"), (Device{DeviceType::cuda, 2}));
    }
    device::set_gpu_of_rank(0);
}

TEST_F(Devices, AreTheCpuWhereThereIsNoGpu) {
    EXPECT_FALSE(is_available());
    EXPECT_EQ(devices(), std::vector<Device>{Device{}});
    EXPECT_EQ(device_count(), 1);
    EXPECT_EQ(device_count(DeviceType::cuda), 0);
    EXPECT_TRUE(devices(DeviceType::cuda).empty());
}

TEST_F(Devices, AreVirtualOnesWhenSetWithGpusToo) {
    have_gpus(2);
    const Variable eight{"DDP_CPU_DEVICES", "8"};
    EXPECT_EQ(device_count(), 8);
    EXPECT_EQ(to_string(devices().front()), "cpu");
    EXPECT_EQ(to_string(devices().back()), "cpu:7");
    EXPECT_TRUE(is_available()) << "that is about GPUs";
    EXPECT_EQ(device_count(DeviceType::cuda), 2);
}

TEST_F(Devices, RefuseABadNumber) {
    for (const char* value : {"0", "-1", "65", "two", "3.5", "4 ", "99999999999999999999"}) {
        const Variable bad{"DDP_CPU_DEVICES", value};
        EXPECT_EQ(usage_error_of([] { static_cast<void>(devices()); }),
                  "DDP_CPU_DEVICES=" + std::string(value) +
                      ": not a number of CPU devices; 1 to 64, or leave it unset for one");
    }
    const Variable empty_one{"DDP_CPU_DEVICES", ""};
    EXPECT_EQ(device_count(), 1);
}

TEST_F(Devices, ThatAreNotThereAreNamedWithTheCure) {
    const auto error_on = [](const Device& device) {
        return usage_error_of([&] { static_cast<void>(zeros({1}, {.device = device})); });
    };
    EXPECT_EQ(error_on({DeviceType::cpu, 3}),
              "device cpu:3: there is cpu alone; DDP_CPU_DEVICES sets how many there are");
    EXPECT_THAT(error_on(first_gpu), AllOf(HasSubstr("sees no GPU (no device)"),
                                           HasSubstr("DDP_CPU_DEVICES=4 gives four devices")));
    have_gpus(2);
    EXPECT_THAT(error_on({DeviceType::cuda, 2}),
                AllOf(HasSubstr("device cuda:2: there are cuda:0 to cuda:1"),
                      HasSubstr("CUDA_VISIBLE_DEVICES")));
    EXPECT_THAT(error_on({DeviceType::cuda, -1}), HasSubstr("device cuda:-1: there are"));
    EXPECT_THAT(usage_error_of([] {
                    const DeviceScope scope{Device{DeviceType::cuda, 2}};
                }),
                HasSubstr("device cuda:2"));
}

TEST_F(Devices, ScopesNestAndUnwind) {
    const Variable four{"DDP_CPU_DEVICES", "4"};
    const Device second{DeviceType::cpu, 1};
    const Device third{DeviceType::cpu, 2};
    EXPECT_EQ(DeviceScope::current(), Device{});
    const DeviceScope outer{second};
    try {
        const DeviceScope inner{third};
        EXPECT_EQ(DeviceScope::current(), third);
        throw std::runtime_error("out of it");
    } catch (const std::runtime_error&) {
        EXPECT_EQ(DeviceScope::current(), second);
    }
    EXPECT_THROW(DeviceScope({DeviceType::cpu, 9}), UsageError);
    EXPECT_EQ(DeviceScope::current(), second) << "one that failed leaves nothing";
}

TEST_F(Devices, ScopesAreAThreadsOwn) {
    const Variable eight{"DDP_CPU_DEVICES", "8"};
    const DeviceScope here{Device{DeviceType::cpu, 7}};
    std::vector<std::vector<Device>> seen(6);
    std::vector<std::thread> threads;
    for (int index = 0; index < 6; ++index) {
        threads.emplace_back([&seen, index] {
            auto& own = seen[static_cast<std::size_t>(index)];
            own.push_back(DeviceScope::current());
            const DeviceScope scope{Device{DeviceType::cpu, index}};
            for (int i = 0; i < 100; ++i) own.push_back(zeros({8}).device());
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (int index = 0; index < 6; ++index) {
        const auto& own = seen[static_cast<std::size_t>(index)];
        EXPECT_EQ(own.front(), Device{}) << "a new thread begins outside of all scopes";
        const std::vector<Device> rest(own.begin() + 1, own.end());
        EXPECT_EQ(rest, std::vector<Device>(100, Device{DeviceType::cpu, index}));
    }
    EXPECT_EQ(zeros({1}).device().index, 7);
}

}  // namespace
}  // namespace ddp::testing
