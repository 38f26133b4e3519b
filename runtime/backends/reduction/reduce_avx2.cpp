// The kernels for x86-64 processors with AVX2 and F16C; compiled with -mavx2 -mf16c, and without
// -mfma, so that it rounds where the others do. See reduce_kernel_set.hpp for what it may not do.
#include "backends/reduction/reduce_avx2.hpp"

#include <immintrin.h>

namespace ddp::backends {
namespace {

struct Machine {
    static constexpr std::size_t vector_bytes = 32;
    static constexpr bool combines_into_several = true;
    static void stream(std::byte* aligned, const std::byte* from) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(aligned),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    static void prefetch_to_write(std::byte* at) { __builtin_prefetch(at, 1); }
    static void finish_streams() { _mm_sfence(); }
};

using Floats [[gnu::vector_size(Machine::vector_bytes)]] = float;
using Words [[gnu::vector_size(Machine::vector_bytes)]] = std::uint32_t;

Words load_words(const std::byte* from) {
    const __m128i shorts = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return __builtin_bit_cast(Words, _mm256_cvtepu16_epi32(shorts));
}
void store_words(std::byte* to, Words words) {
    const auto all = __builtin_bit_cast(__m256i, words);
    const __m128i shorts =
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), shorts);
}

Floats widen_half(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
void narrow_half(std::byte* to, Floats value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace ddp::backends

#include "backends/reduction/reduce_kernels.hpp"

namespace ddp::backends {

constexpr KernelSet avx2_kernel_set = kernel_set;

}  // namespace ddp::backends
