// Counts the memory of tensors for ddp/memory.hpp.
#pragma once

#include <ddp/device.hpp>

#include <cstddef>
#include <memory>

namespace ddp::device {

// The same memory, counted as the device's until its last owner lets go of it.
std::shared_ptr<void> counted(std::shared_ptr<void> memory, std::size_t bytes,
                              const Device& device);

}  // namespace ddp::device
