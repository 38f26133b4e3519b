// Whether there is such a device.
#pragma once

#include <ddp/device.hpp>

namespace ddp::device {

// Throws UsageError with what there is instead, and what gives more.
void require_known(const Device& device);

}  // namespace ddp::device
