// The kernels for processors other than x86-64: the compiler maps the vectors to what there is,
// and stores go through the caches.
#include "backends/reduction/reduce_baseline.hpp"
#include "backends/reduction/reduce_kernel_set.hpp"

#include <cstring>

namespace ddp::backends {
namespace {

struct Machine : Baseline {
    static void stream(std::byte* aligned, const std::byte* from) {
        std::memcpy(aligned, from, vector_bytes);
    }
    static void finish_streams() {}
};

}  // namespace
}  // namespace ddp::backends

#include "backends/reduction/reduce_half_bits.hpp"
#include "backends/reduction/reduce_kernels.hpp"

namespace ddp::backends {

const KernelSet& baseline_kernels() noexcept { return kernel_set; }

const KernelSet* avx2_kernels() noexcept { return nullptr; }

}  // namespace ddp::backends
