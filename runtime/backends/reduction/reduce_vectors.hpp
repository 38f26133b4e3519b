// Vectors of the width that a Machine has (GCC's vector extension), and how the element types are
// loaded into them and stored. Included by each source of kernels, after its Machine and
// the conversions of 16-bit elements: load_words, store_words, widen_half, narrow_half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddp::backends {
namespace {

template <class T>
struct VectorOf {
    using Type [[gnu::vector_size(Machine::vector_bytes)]] = T;
};
template <class T>
using Vector = typename VectorOf<T>::Type;

// Formats: how elements lie in memory, and in which type (Work) they are computed with.
template <class T>
struct Plain {
    using Work = T;
    static constexpr std::size_t bytes = sizeof(T);

    [[gnu::always_inline]] static Vector<T> load(const std::byte* from) {
        Vector<T> value;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    [[gnu::always_inline]] static void store(std::byte* to, Vector<T> value) {
        std::memcpy(to, &value, sizeof value);
    }
};

struct Half {
    using Work = float;
    static constexpr std::size_t bytes = 2;

    [[gnu::always_inline]] static Vector<float> load(const std::byte* from) {
        return widen_half(from);
    }
    [[gnu::always_inline]] static void store(std::byte* to, Vector<float> value) {
        narrow_half(to, value);
    }
};

struct BFloat16 {
    using Work = float;
    using Words = Vector<std::uint32_t>;
    static constexpr std::size_t bytes = 2;

    [[gnu::always_inline]] static Vector<float> load(const std::byte* from) {
        return __builtin_bit_cast(Vector<float>, load_words(from) << 16);
    }
    [[gnu::always_inline]] static void store(std::byte* to, Vector<float> value) {
        const auto word = __builtin_bit_cast(Words, value);
        const Words upper = word >> 16;
        const Words rounded = (word + 0x7fffU + (upper & 1U)) >> 16;
        store_words(to, value == value ? rounded : upper | 0x40U);
    }
};

template <class Format>
constexpr std::size_t lanes = Machine::vector_bytes / sizeof(typename Format::Work);

}  // namespace
}  // namespace ddp::backends
