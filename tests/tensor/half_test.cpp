// The two half types' conversions, against arithmetic in double that knows nothing of their bits.
#include <ddp/half.hpp>

#include "support/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace {

using namespace ddp;

struct Format {
    int fraction_bits;
    int least_exponent;  // of normal numbers
    int bias;
    double largest;
};
constexpr Format binary16{10, -14, 15, 65504};
constexpr Format upper_half{7, -126, 127, 0x1.fep127};

double value_of(std::uint16_t bits, const Format& format) {
    const int fraction = bits & ((1 << format.fraction_bits) - 1);
    const int exponent = (bits & 0x7fff) >> format.fraction_bits;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 2 * format.bias + 1) {
        return sign * (fraction == 0 ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN());
    }
    const int unit = format.least_exponent - format.fraction_bits;
    if (exponent == 0) return sign * std::ldexp(fraction, unit);
    return sign * std::ldexp(fraction + (1 << format.fraction_bits), unit + exponent - 1);
}

// To nearest, ties to even: what std::nearbyint does to multiples of the last place.
double rounded(double value, const Format& format) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int exponent = std::max(std::ilogb(value), format.least_exponent);
    const double unit = std::ldexp(1, exponent - format.fraction_bits);
    const double nearest = std::nearbyint(value / unit) * unit;
    if (std::abs(nearest) <= format.largest) return nearest;
    return std::copysign(std::numeric_limits<double>::infinity(), value);
}

template <class Type>
void expect_all_patterns_convert(const Format& format) {
    for (std::uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
        const auto bits = static_cast<std::uint16_t>(pattern);
        const float value = static_cast<float>(Type::from_bits(bits));
        const double expected = value_of(bits, format);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(value)) << std::hex << pattern;
            ASSERT_TRUE(std::isnan(static_cast<float>(Type(value)))) << std::hex << pattern;
            ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << std::hex << pattern;
        } else {
            ASSERT_EQ(value, expected) << std::hex << pattern;
            ASSERT_EQ(Type(value).bits, bits) << std::hex << pattern;
        }
    }
}

template <class Type>
void expect_rounds(float value, const Format& format) {
    const float result = static_cast<float>(Type(value));
    if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(result)) << std::hex << std::bit_cast<std::uint32_t>(value);
    } else {
        ASSERT_EQ(result, rounded(value, format)) << std::hexfloat << value;
    }
    ASSERT_EQ(std::signbit(result), std::signbit(value)) << std::hexfloat << value;
}

// Each midpoint of two neighbours, and the floats next to it.
template <class Type>
void expect_midpoints_round(const Format& format) {
    for (std::uint32_t pattern = 0; pattern < 0x7fff; ++pattern) {
        const auto bits = static_cast<std::uint16_t>(pattern);
        const double low = value_of(bits, format);
        double high = value_of(static_cast<std::uint16_t>(bits + 1), format);
        if (!std::isfinite(low)) break;
        if (!std::isfinite(high))
            high = low + (low - value_of(static_cast<std::uint16_t>(bits - 1), format));
        const auto middle = static_cast<float>((low + high) / 2);
        for (const float sign : {1.0F, -1.0F}) {
            const float at = sign * middle;
            expect_rounds<Type>(at, format);
            expect_rounds<Type>(std::nextafter(at, 0.0F), format);
            expect_rounds<Type>(std::nextafter(at, sign * HUGE_VALF), format);
        }
    }
}

template <class Type>
void expect_random_floats_round(const Format& format) {
    std::mt19937 random(store_test::random_seed());
    for (int i = 0; i < 300'000; ++i) {
        const auto any = static_cast<std::uint32_t>(random());
        expect_rounds<Type>(std::bit_cast<float>(any), format);
        // Near the exponents of float16, which few of all floats are.
        const auto exponent = static_cast<std::uint32_t>(96 + random() % 48);
        const std::uint32_t near = (any & 0x807fffffU) | exponent << 23;
        expect_rounds<Type>(std::bit_cast<float>(near), format);
    }
}

TEST(Float16, ConvertsEveryPatternAndBack) { expect_all_patterns_convert<float16>(binary16); }
TEST(BFloat16, ConvertsEveryPatternAndBack) { expect_all_patterns_convert<bfloat16>(upper_half); }

TEST(Float16, RoundsMidpointsToEven) { expect_midpoints_round<float16>(binary16); }
TEST(BFloat16, RoundsMidpointsToEven) { expect_midpoints_round<bfloat16>(upper_half); }

TEST(Float16, RoundsEveryFloatToTheNearest) { expect_random_floats_round<float16>(binary16); }
TEST(BFloat16, RoundsEveryFloatToTheNearest) { expect_random_floats_round<bfloat16>(upper_half); }

TEST(Float16, TooLargeIsInfinite) {
    EXPECT_EQ(float16(65519.0F).bits, 0x7bff);
    EXPECT_EQ(float16(65520.0F).bits, 0x7c00);
    EXPECT_EQ(float16(-1e30F).bits, 0xfc00);
    EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(Float16, NansAreUnequalAndZerosEqual) {
    EXPECT_FALSE(float16::from_bits(0x7e00) == float16::from_bits(0x7e00));
    EXPECT_TRUE(float16::from_bits(0x8000) == float16::from_bits(0));
    EXPECT_FALSE(bfloat16::from_bits(0x7fc0) == bfloat16::from_bits(0x7fc0));
    EXPECT_TRUE(bfloat16::from_bits(0x8000) == bfloat16::from_bits(0));
}

#if defined(__x86_64__)
[[gnu::target("f16c")]] std::uint16_t by_hardware(float value) {
    const __m128i halves = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
    return static_cast<std::uint16_t>(_mm_cvtsi128_si32(halves));
}
[[gnu::target("f16c")]] float by_hardware(std::uint16_t bits) { return _cvtsh_ss(bits); }
// clang 14's __builtin_cpu_supports does not know f16c.
bool hardware_converts() {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0 &&
           __builtin_cpu_supports("avx") != 0;
}

TEST(Float16, ConvertsAsTheHardwareDoes) {
    if (!hardware_converts()) GTEST_SKIP() << "this processor has no F16C";
    for (std::uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
        const auto bits = static_cast<std::uint16_t>(pattern);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(float16::to_float(bits)),
                  std::bit_cast<std::uint32_t>(by_hardware(bits)))
            << std::hex << pattern;
    }
    std::mt19937 random(store_test::random_seed());
    for (int i = 0; i < 1'000'000; ++i) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        ASSERT_EQ(float16::from_float(value), by_hardware(value)) << std::hexfloat << value;
    }
}
#endif

}  // namespace
