// How many bytes of tensors there are on each device: those that the functions of
// tensor_functions.hpp and the members of Tensor have made, in all threads, pinned ones as the
// CPU's. Sources: torch.cuda.memory_allocated, max_memory_allocated and reset_peak_memory_stats.
#pragma once

#include <ddp/device.hpp>
#include <ddp/export.hpp>

#include <cstddef>

namespace ddp {

// Now.
DDP_API std::size_t memory_allocated(const Device& device);
// The most there were at once, since the program began or the last reset.
DDP_API std::size_t max_memory_allocated(const Device& device);
// From now on the peak is that of what comes, beginning with what there is.
DDP_API void reset_peak_memory_stats(const Device& device);

}  // namespace ddp
