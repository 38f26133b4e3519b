// The operations on vectors: how two are combined, and what is done to the result. Included by each
// source of kernels, after its Machine.
#pragma once

#include "backends/reduction/reduce_vectors.hpp"

#include <type_traits>

namespace ddp::backends {
namespace {

// Signed integers are computed with as unsigned ones: they wrap around.
template <class T>
struct WrappingOf {
    using Type = T;
};
template <class T>
requires std::is_integral_v<T>
struct WrappingOf<T> {
    using Type = std::make_unsigned_t<T>;
};
template <class T>
using Wrapping = Vector<typename WrappingOf<T>::Type>;

struct Sum {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return __builtin_bit_cast(
            Vector<T>, __builtin_bit_cast(Wrapping<T>, a) + __builtin_bit_cast(Wrapping<T>, b));
    }
};
struct Product {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return __builtin_bit_cast(
            Vector<T>, __builtin_bit_cast(Wrapping<T>, a) * __builtin_bit_cast(Wrapping<T>, b));
    }
};
// The first comparison fails for a NaN in b, the second keeps a NaN in a.
struct Min {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return ((a < b) | (a != a)) ? a : b;
    }
};
struct Max {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return ((a > b) | (a != a)) ? a : b;
    }
};
struct And {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return a & b;
    }
};
struct Or {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return a | b;
    }
};
struct Xor {
    template <class T>
    [[gnu::always_inline]] static Vector<T> apply(Vector<T> a, Vector<T> b) {
        return a ^ b;
    }
};

// What is done to a finished vector.
struct Keep {
    template <class T>
    [[gnu::always_inline]] Vector<T> apply(Vector<T> value) const {
        return value;
    }
};
struct Multiply {
    double factor;
    template <class T>
    [[gnu::always_inline]] Vector<T> apply(Vector<T> value) const {
        return value * static_cast<T>(factor);
    }
};
// Divisor: std::size_t, or a std::integral_constant where the number of inputs is fixed.
template <class Divisor>
struct Divide {
    Divisor divisor;
    template <class T>
    [[gnu::always_inline]] Vector<T> apply(Vector<T> value) const {
        const std::size_t by = divisor;
        if constexpr (std::is_floating_point_v<T>) {
            // The same bits, and much faster.
            constexpr bool fixed = !std::is_same_v<Divisor, std::size_t>;
            if (fixed && (by & (by - 1)) == 0) return value * (1 / static_cast<T>(by));
            return value / static_cast<T>(by);
        } else {
            // Of a type that holds the divisor too.
            using Small = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
            using Wide = std::conditional_t<(sizeof(T) < sizeof(Small)), Small, T>;
            for (std::size_t i = 0; i < Machine::vector_bytes / sizeof(T); ++i) {
                value[i] = static_cast<T>(static_cast<Wide>(value[i]) / static_cast<Wide>(by));
            }
            return value;
        }
    }
};

}  // namespace
}  // namespace ddp::backends
