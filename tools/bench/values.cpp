// Arithmetic on small integers in double, which is exact, rounded once to the element's type.
#include "bench/values.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace ddp::bench {
namespace {

// Calls visitor(T{}) with the C++ type of `dtype`.
template <class Visitor>
auto visit_type(DType dtype, const Visitor& visitor) {
    switch (dtype) {
        case DType::float32:
            return visitor(float{});
        case DType::float64:
            return visitor(double{});
        case DType::int32:
            return visitor(std::int32_t{});
        case DType::int64:
            return visitor(std::int64_t{});
        case DType::uint8:
            return visitor(std::uint8_t{});
        case DType::float16:
            return visitor(float16{});
        case DType::bfloat16:
            return visitor(bfloat16{});
        case DType::int8:
            return visitor(std::int8_t{});
        case DType::int16:
            return visitor(std::int16_t{});
        case DType::boolean:
            return visitor(bool{});
    }
    throw UsageError("ddp-bench: unknown dtype");
}

// Where the arithmetic is exact: all values are small integers, or halves of them.
double to_double(float16 value) { return static_cast<float>(value); }
double to_double(bfloat16 value) { return static_cast<float>(value); }
template <class T>
double to_double(T value) {
    return static_cast<double>(value);
}

template <class T>
T from_double(double value) {
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
        return T(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
        return value != 0;
    } else if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::int64_t>(value));  // wraps around
    } else {
        return static_cast<T>(value);
    }
}

// Whatever the number of ranks, no sum leaves int8 (below 128 ranks) and no product any type.
double value_of(DType dtype, ReduceOp op, int rank, int ranks, std::size_t index) {
    const unsigned number = digit(rank, index);
    if (dtype == DType::boolean) return number & 1U;
    if (op.kind == ReduceOp::product) return rank < 6 ? 1 + (number & 1U) : 1;
    const auto span = static_cast<unsigned>(std::clamp(127 / ranks, 1, 4));
    return 1 + number % span;
}

double combine_bits(ReduceOp op, double a, double b) {
    const auto x = static_cast<std::int64_t>(a);
    const auto y = static_cast<std::int64_t>(b);
    if (op.kind == ReduceOp::bit_and) return static_cast<double>(x & y);
    if (op.kind == ReduceOp::bit_or) return static_cast<double>(x | y);
    return static_cast<double>(x ^ y);
}

double combine(ReduceOp op, double a, double b) {
    switch (op.kind) {
        case ReduceOp::sum:
        case ReduceOp::avg:
        case ReduceOp::premul_sum:
            return a + b;
        case ReduceOp::min:
            return std::min(a, b);
        case ReduceOp::max:
            return std::max(a, b);
        case ReduceOp::product:
            return a * b;
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            return combine_bits(op, a, b);
    }
    return 0;
}

template <class T>
T load(const std::byte* from) {
    T value{};
    std::memcpy(&value, from, sizeof value);
    return value;
}

// The distance of neighbours, relative to the value, at most.
template <class T>
constexpr double step_of() {
    if (std::is_same_v<T, double>) return 0x1p-51;
    if (std::is_same_v<T, float>) return 0x1p-22;
    if (std::is_same_v<T, float16>) return 0x1p-9;
    return std::is_same_v<T, bfloat16> ? 0x1p-6 : 0;
}

}  // namespace

std::vector<Pattern> make_patterns(DType dtype, ReduceOp op, int ranks) {
    return visit_type(dtype, [&]<class T>(T) {
        std::vector<Pattern> patterns;
        for (int rank = 0; rank < ranks; ++rank) {
            Pattern pattern(pattern_length * sizeof(T));
            for (std::size_t i = 0; i < pattern_length; ++i) {
                const T value = from_double<T>(value_of(dtype, op, rank, ranks, i));
                std::memcpy(pattern.data() + i * sizeof(T), &value, sizeof(T));
            }
            patterns.push_back(std::move(pattern));
        }
        return patterns;
    });
}

Pattern reduce_patterns(DType dtype, ReduceOp op, const std::vector<Pattern>& patterns) {
    return visit_type(dtype, [&]<class T>(T) {
        Pattern reduced(pattern_length * sizeof(T));
        for (std::size_t at = 0; at < reduced.size(); at += sizeof(T)) {
            double result = to_double(load<T>(patterns.front().data() + at));
            for (std::size_t rank = 1; rank < patterns.size(); ++rank) {
                result = combine(op, result, to_double(load<T>(patterns[rank].data() + at)));
            }
            if (op.kind == ReduceOp::avg) result /= static_cast<double>(patterns.size());
            if (op.kind == ReduceOp::premul_sum) result *= op.factor;
            const T value = from_double<T>(result);
            std::memcpy(reduced.data() + at, &value, sizeof(T));
        }
        return reduced;
    });
}

std::size_t count_wrong(const std::byte* got, const Stretch& expected, DType dtype, ReduceOp op) {
    return visit_type(dtype, [&]<class T>(T) {
        const double step = op.kind == ReduceOp::avg ? step_of<T>() : 0;
        std::size_t wrong = 0;
        compare_sequence(got, expected, [&](const std::byte* a, const std::byte* b) {
            if (step > 0) {
                const double want = to_double(load<T>(b));
                if (std::abs(to_double(load<T>(a)) - want) <= step * std::abs(want)) return;
            }
            ++wrong;
        });
        return wrong;
    });
}

}  // namespace ddp::bench
