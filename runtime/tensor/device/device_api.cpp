#include "tensor/device/device_api.hpp"

#include <atomic>

namespace ddp::device {
namespace {

constinit std::atomic<DeviceApi*> of_a_test{nullptr};

}  // namespace

DeviceApi& device_api() {
    DeviceApi* const other = of_a_test.load(std::memory_order_acquire);
    return other != nullptr ? *other : built_in_device_api();
}

void use_device_api(DeviceApi* api) { of_a_test.store(api, std::memory_order_release); }

}  // namespace ddp::device
