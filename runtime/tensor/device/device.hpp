// What rooms of the library ask of devices, beside what ddp/device.hpp has for programs.
#pragma once

#include <ddp/device.hpp>

namespace ddp::device {

// Throws UsageError, for a device that is not there, with what there is instead, and what gives
// more.
void require_known(const Device& device);

// The CPU device of a rank without a GPU; DDP_CPU_DEVICES may make several. Throws UsageError as
// devices() does.
Device cpu_of_rank(int local_rank);

// From now on "cuda" is this GPU, as after torch.cuda.set_device().
void set_gpu_of_rank(int index) noexcept;

}  // namespace ddp::device
