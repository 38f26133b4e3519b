// The one device that a rank of a job works on.
#pragma once

#include <ddp/device.hpp>

namespace ddp::device {

// Without a GPU: of the CPU devices, of which DDP_CPU_DEVICES may make several. Throws UsageError
// as devices() does.
Device cpu_of_rank(int local_rank);

// From now on "cuda" is this GPU, as after torch.cuda.set_device().
void set_gpu_of_rank(int index) noexcept;

}  // namespace ddp::device
