// float16 from and to float32 by integer arithmetic, a vector at a time: the rules of ddp/half.hpp
// (nearest, ties to even) without a branch. Included by each source of kernels, after its Machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddp::backends {
namespace {

using Floats [[gnu::vector_size(Machine::vector_bytes)]] = float;
using Words [[gnu::vector_size(Machine::vector_bytes)]] = std::int32_t;
using Halves [[gnu::vector_size(Machine::vector_bytes / 2)]] = std::uint16_t;

[[gnu::always_inline]] inline Floats widen_half(const std::byte* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    const Words bits = __builtin_convertvector(halves, Words);
    const Words sign = (bits & 0x8000) << 16;
    const Words magnitude = bits & 0x7fff;
    const Words shifted = magnitude << 13;
    const Floats units = __builtin_convertvector(magnitude, Floats) * 0x1p-24F;
    const Words normal = shifted + 0x38000000;
    const Words special = (shifted + 0x70000000) | ((magnitude > 0x7c00) & 0x400000);
    const Words finite = magnitude < 0x400 ? __builtin_bit_cast(Words, units) : normal;
    return __builtin_bit_cast(Floats, sign | (magnitude < 0x7c00 ? finite : special));
}

[[gnu::always_inline]] inline void narrow_half(std::byte* to, Floats value) {
    const Words word = __builtin_bit_cast(Words, value);
    const Words sign = (word >> 16) & 0x8000;
    const Words magnitude = word & 0x7fffffff;
    // Adding 0.5 lets the adder round what becomes a subnormal.
    const Floats small = __builtin_bit_cast(Floats, magnitude) + 0.5F;
    const Words subnormal = __builtin_bit_cast(Words, small) - 0x3f000000;
    const Words even = (magnitude >> 13) & 1;
    const Words normal = (magnitude - 0x38000000 + 0xfff + even) >> 13;
    const Words infinite = (magnitude & 0) + 0x7c00;
    const Words nan = ((magnitude >> 13) & 0x1ff) | 0x7e00;
    const Words finite = magnitude < 0x38800000 ? subnormal : normal;
    const Words other = magnitude > 0x7f800000 ? nan : infinite;
    const Words result = sign | (magnitude < 0x47800000 ? finite : other);
    const Halves halves = __builtin_convertvector(result, Halves);
    std::memcpy(to, &halves, sizeof halves);
}

}  // namespace
}  // namespace ddp::backends
