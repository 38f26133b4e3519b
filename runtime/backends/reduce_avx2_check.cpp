// Whether the processor runs the AVX2 kernels. In a file of its own, since this must run on any.
#include "backends/reduce_avx2.hpp"

namespace ddp::backends {

const KernelSet* avx2_kernels() noexcept {
    const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    return able ? &avx2_kernel_set : nullptr;
}

}  // namespace ddp::backends
