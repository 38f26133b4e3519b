// The one DeviceApi that a build brings along: device_api_cuda.cpp defines it, or
// device_api_absent.cpp.
#pragma once

#include "tensor/device/device_api.hpp"

namespace ddp::device {

DeviceApi& built_in_device_api();

}  // namespace ddp::device
