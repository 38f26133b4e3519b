// The kernels for every x86-64 processor. They have no instructions for float16, so integer
// arithmetic converts them.
#include "backends/reduction/reduce_baseline.hpp"
#include "backends/reduction/reduce_kernel_set.hpp"

#include <emmintrin.h>

namespace ddp::backends {
namespace {

struct Machine : Baseline {
    static void stream(std::byte* aligned, const std::byte* from) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(aligned),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static void finish_streams() { _mm_sfence(); }
};

}  // namespace
}  // namespace ddp::backends

#include "backends/reduction/reduce_half_bits.hpp"
#include "backends/reduction/reduce_kernels.hpp"

namespace ddp::backends {

const KernelSet& baseline_kernels() noexcept { return kernel_set; }

}  // namespace ddp::backends
