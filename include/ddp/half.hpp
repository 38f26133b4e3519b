// The two 16-bit floating-point types, as bits. They are for storage and transport: conversions
// from and to float, no arithmetic. Same layout as __half, __nv_bfloat16, c10::Half, c10::BFloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace ddp {

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction; largest value 65504.
struct float16 {
    std::uint16_t bits = 0;

    float16() = default;
    // Rounds to nearest, ties to even; too large gives an infinity; a NaN stays one (quiet).
    explicit float16(float value) noexcept : bits(from_float(value)) {}
    explicit operator float() const noexcept { return to_float(bits); }
    static float16 from_bits(std::uint16_t bits) noexcept {
        float16 result;
        result.bits = bits;
        return result;
    }
    friend bool operator==(float16 a, float16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }

    // Rounded to nearest, ties to even.
    static std::uint16_t from_float(float value) noexcept {
        const auto word = std::bit_cast<std::uint32_t>(value);
        const auto sign = static_cast<std::uint16_t>(word >> 16 & 0x8000U);
        const std::uint32_t magnitude = word & 0x7fffffffU;
        if (magnitude > 0x7f800000U) {  // NaN: keeps the upper fraction bits, as the hardware does
            return static_cast<std::uint16_t>(sign | 0x7e00U | (magnitude >> 13 & 0x1ffU));
        }
        if (magnitude >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
        if (magnitude < 0x38800000U) {  // subnormal: adding 0.5 lets the adder round
            const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
            return static_cast<std::uint16_t>(
                sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
        }
        const std::uint32_t rounded = magnitude + 0xfffU + (magnitude >> 13 & 1U) - 0x38000000U;
        return static_cast<std::uint16_t>(sign | rounded >> 13);
    }
    // Exact.
    static float to_float(std::uint16_t bits) noexcept {
        const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
        const std::uint32_t magnitude = bits & 0x7fffU;
        if (magnitude >= 0x7c00U) {  // infinity, or a NaN made quiet
            const std::uint32_t quiet = magnitude > 0x7c00U ? 0x400000U : 0U;
            return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13 | quiet);
        }
        if (magnitude < 0x400U) {  // zero or subnormal: units of 2^-24
            const float value = static_cast<float>(magnitude) * 0x1p-24F;
            return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
        }
        return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
    }
};

// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct bfloat16 {
    std::uint16_t bits = 0;

    bfloat16() = default;
    // Rounds to nearest, ties to even; a NaN stays one (quiet).
    explicit bfloat16(float value) noexcept : bits(from_float(value)) {}
    explicit operator float() const noexcept { return to_float(bits); }
    static bfloat16 from_bits(std::uint16_t bits) noexcept {
        bfloat16 result;
        result.bits = bits;
        return result;
    }
    friend bool operator==(bfloat16 a, bfloat16 b) noexcept {
        return static_cast<float>(a) == static_cast<float>(b);
    }

    // Rounded to nearest, ties to even.
    static std::uint16_t from_float(float value) noexcept {
        const auto word = std::bit_cast<std::uint32_t>(value);
        if ((word & 0x7fffffffU) > 0x7f800000U) {
            return static_cast<std::uint16_t>(word >> 16 | 0x40U);
        }
        return static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
    }
    // Exact.
    static float to_float(std::uint16_t bits) noexcept {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
};

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);

}  // namespace ddp
