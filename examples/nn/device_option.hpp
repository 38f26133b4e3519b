// `--device auto|cpu|cuda` of the examples that run on several devices.
#pragma once

#include <ddp/device.hpp>

#include <string_view>
#include <vector>

namespace nn {

// auto: ddp::devices(). Throws ddp::UsageError for another word, and for cuda where there is no
// GPU.
std::vector<ddp::Device> devices_for(std::string_view choice);

}  // namespace nn
