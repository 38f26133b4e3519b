// The kernels of reduce_avx2.cpp, which may only be called on a processor with AVX2 and F16C.
#pragma once

#include "backends/reduction/reduce_kernel_set.hpp"

namespace ddp::backends {

extern const KernelSet avx2_kernel_set;

}  // namespace ddp::backends
