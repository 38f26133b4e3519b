// What backends::reduce promises, written down a second time: one element at a time, as a
// recursion over ranks, with the C++ types' own arithmetic. And random elements to try it on.
#pragma once

#include <ddp/dtype.hpp>
#include <ddp/reduce_op.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

namespace ddp::reduce_test {

// Calls f(T{}) with the C++ type of the elements.
template <class F>
auto with_type(DType dtype, F f) {
    switch (dtype) {
        case DType::float32:
            return f(float{});
        case DType::float64:
            return f(double{});
        case DType::float16:
            return f(float16{});
        case DType::bfloat16:
            return f(bfloat16{});
        case DType::int8:
            return f(std::int8_t{});
        case DType::int16:
            return f(std::int16_t{});
        case DType::int32:
            return f(std::int32_t{});
        case DType::int64:
            return f(std::int64_t{});
        case DType::uint8:
            return f(std::uint8_t{});
        case DType::boolean:
            break;
    }
    return f(bool{});
}

template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
using Work = std::conditional_t<
    is_half<T>, float,
    std::conditional_t<std::is_floating_point_v<T>, T,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>>;

template <class W>
W apply(ReduceOp::Kind op, W a, W b) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
        case ReduceOp::premul_sum:
            if constexpr (std::is_floating_point_v<W>) return a + b;
            return static_cast<W>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
        case ReduceOp::product:
            if constexpr (std::is_floating_point_v<W>) return a * b;
            return static_cast<W>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        case ReduceOp::min:
            if (a != a || b != b) return a + b;
            return b < a ? b : a == b ? b : a;
        case ReduceOp::max:
            if (a != a || b != b) return a + b;
            return b > a ? b : a == b ? b : a;
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            break;
    }
    if constexpr (std::is_integral_v<W>) {
        return op == ReduceOp::bit_and ? a & b : op == ReduceOp::bit_or ? a | b : a ^ b;
    }
    return a;
}

// Of column[low] ... column[high - 1].
template <class W>
W tree(ReduceOp::Kind op, const std::vector<W>& column, std::size_t low, std::size_t high) {
    if (high - low == 1) return column[low];
    const std::size_t middle = low + std::bit_floor(high - low - 1);
    return apply(op, tree(op, column, low, middle), tree(op, column, middle, high));
}

template <class T>
T reduced(ReduceOp::Kind op, const std::vector<T>& column, const std::vector<double>& factors) {
    using W = Work<T>;
    std::vector<W> wide(column.size());
    for (std::size_t r = 0; r < column.size(); ++r) {
        wide[r] = static_cast<W>(column[r]);
        if (op == ReduceOp::premul_sum) wide[r] *= static_cast<W>(factors[r]);
    }
    W result = tree(op, wide, 0, wide.size());
    if constexpr (std::is_same_v<T, bool>) return result != 0;
    if (op == ReduceOp::avg) {
        if constexpr (std::is_integral_v<T>) result = static_cast<T>(result);  // it has wrapped
        result = static_cast<W>(result / static_cast<W>(column.size()));
    }
    return static_cast<T>(result);
}

// Mostly numbers of about the same size and of all a double's digits, so that sums round; some of
// every kind.
template <class T>
T random_element(std::mt19937& random) {
    if constexpr (std::is_same_v<T, bool>) {
        return random() % 2 == 0;
    } else if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::uint64_t>(random()) << 32 | random());
    } else if (random() % 64 == 0) {  // any bits: infinities, NaNs, subnormals
        const std::uint64_t bits = static_cast<std::uint64_t>(random()) << 32 | random();
        if constexpr (is_half<T>) return T::from_bits(static_cast<std::uint16_t>(bits));
        T any{};
        std::memcpy(static_cast<void*>(&any), &bits, sizeof any);
        return any;
    } else if (random() % 64 == 0) {
        const double special[] = {0.0, -0.0, INFINITY, 65504, -65504, 1e-7, -6e-8, 3e38, 1e-40};
        return static_cast<T>(static_cast<Work<T>>(special[random() % 9]));
    } else {
        const std::uint64_t bits = static_cast<std::uint64_t>(random()) << 32 | random();
        return static_cast<T>(static_cast<Work<T>>(
            std::ldexp(static_cast<double>(std::bit_cast<std::int64_t>(bits)), -56)));
    }
}

// Equal bits, or both NaNs.
template <class T>
bool same(T a, T b) {
    if (std::memcmp(&a, &b, sizeof a) == 0) return true;
    if constexpr (std::is_floating_point_v<Work<T>>) {
        return std::isnan(static_cast<Work<T>>(a)) && std::isnan(static_cast<Work<T>>(b));
    }
    return false;
}

}  // namespace ddp::reduce_test
