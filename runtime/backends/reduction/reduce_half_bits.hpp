// 16-bit elements for processors without instructions for them: float16 from and to float32 by
// integer arithmetic, the rules of ddp/half.hpp (nearest, ties to even) without a branch. Included
// by each such source of kernels, after its Machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddp::backends {
namespace {

using Floats [[gnu::vector_size(Machine::vector_bytes)]] = float;
using Integers [[gnu::vector_size(Machine::vector_bytes)]] = std::int32_t;
using Words [[gnu::vector_size(Machine::vector_bytes)]] = std::uint32_t;
using Shorts [[gnu::vector_size(Machine::vector_bytes / 2)]] = std::uint16_t;

[[gnu::always_inline]] inline Words load_words(const std::byte* from) {
    Shorts shorts;
    std::memcpy(&shorts, from, sizeof shorts);
    return __builtin_convertvector(shorts, Words);
}
[[gnu::always_inline]] inline void store_words(std::byte* to, Words words) {
    const Shorts shorts = __builtin_convertvector(words, Shorts);
    std::memcpy(to, &shorts, sizeof shorts);
}

[[gnu::always_inline]] inline Floats widen_half(const std::byte* from) {
    const Integers bits = __builtin_bit_cast(Integers, load_words(from));
    const Integers sign = (bits & 0x8000) << 16;
    const Integers magnitude = bits & 0x7fff;
    const Integers shifted = magnitude << 13;
    const Floats units = __builtin_convertvector(magnitude, Floats) * 0x1p-24F;
    const Integers normal = shifted + 0x38000000;
    const Integers special = (shifted + 0x70000000) | ((magnitude > 0x7c00) & 0x400000);
    const Integers finite = magnitude < 0x400 ? __builtin_bit_cast(Integers, units) : normal;
    return __builtin_bit_cast(Floats, sign | (magnitude < 0x7c00 ? finite : special));
}

[[gnu::always_inline]] inline void narrow_half(std::byte* to, Floats value) {
    const auto word = __builtin_bit_cast(Integers, value);
    const Integers sign = (word >> 16) & 0x8000;
    const Integers magnitude = word & 0x7fffffff;
    // Adding 0.5 lets the adder round what becomes a subnormal.
    const Floats small = __builtin_bit_cast(Floats, magnitude) + 0.5F;
    const Integers subnormal = __builtin_bit_cast(Integers, small) - 0x3f000000;
    const Integers even = (magnitude >> 13) & 1;
    const Integers normal = (magnitude - 0x38000000 + 0xfff + even) >> 13;
    const Integers infinite = (magnitude & 0) + 0x7c00;
    const Integers nan = ((magnitude >> 13) & 0x1ff) | 0x7e00;
    const Integers finite = magnitude < 0x38800000 ? subnormal : normal;
    const Integers other = magnitude > 0x7f800000 ? nan : infinite;
    const Integers result = sign | (magnitude < 0x47800000 ? finite : other);
    store_words(to, __builtin_bit_cast(Words, result));
}

}  // namespace
}  // namespace ddp::backends
