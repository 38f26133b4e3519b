// Whether the processor runs the AVX2 kernels. In a file of its own, since this must run on any.
#include "backends/reduction/reduce_avx2.hpp"

#include "base/cpu_features.hpp"

namespace ddp::backends {

const KernelSet* avx2_kernels() noexcept {
    return base::has_avx2_and_f16c() ? &avx2_kernel_set : nullptr;
}

}  // namespace ddp::backends
