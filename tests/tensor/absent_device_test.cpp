// The device API of a build without CUDA, which this program has whatever the build has.
#include "tensor/device/device_api.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::device {
namespace {

using ::testing::HasSubstr;

TEST(AbsentDevice, HasNoDeviceAndSaysWhy) {
    const Probe probe = device_api().probe();
    EXPECT_EQ(probe.devices, 0);
    EXPECT_EQ(probe.reason, "ddp is built without CUDA");
}

TEST(AbsentDevice, KnowsOrdinaryMemoryAndRefusesTheRest) {
    const int ordinary = 0;
    EXPECT_EQ(device_api().device_of(&ordinary), Device{});
    try {
        device_api().allocate(16);
        ADD_FAILURE() << "memory of no device";
    } catch (const BackendError& error) {
        EXPECT_EQ(error.library(), "cuda");
        EXPECT_THAT(error.what(), HasSubstr("allocate: ddp is built without CUDA"));
    }
}

// Never asked anything: its address is enough.
TEST(AbsentDevice, GivesWayToTheOneOfATest) {
    DeviceApi& built_in = device_api();
    auto* const other = reinterpret_cast<DeviceApi*>(&built_in + 1);
    use_device_api(other);
    EXPECT_EQ(&device_api(), other);
    use_device_api(nullptr);
    EXPECT_EQ(&device_api(), &built_in);
}

}  // namespace
}  // namespace ddp::device
