// Vectors of the width that a Machine has (GCC's vector extension), and how the element types are
// loaded into them and stored. Included by each source of kernels, after its Machine, widen_half
// and narrow_half.
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

struct Brain {
    using Work = float;
    using Words = Vector<std::uint32_t>;
    using Shorts [[gnu::vector_size(Machine::vector_bytes / 2)]] = std::uint16_t;
    static constexpr std::size_t bytes = 2;

    [[gnu::always_inline]] static Vector<float> load(const std::byte* from) {
        Shorts shorts;
        std::memcpy(&shorts, from, sizeof shorts);
        return __builtin_bit_cast(Vector<float>, __builtin_convertvector(shorts, Words) << 16);
    }
    [[gnu::always_inline]] static void store(std::byte* to, Vector<float> value) {
        const Words word = __builtin_bit_cast(Words, value);
        const Words upper = word >> 16;
        const Words rounded = (word + 0x7fffU + (upper & 1U)) >> 16;
        const Words result = value == value ? rounded : upper | 0x40U;
        const Shorts shorts = __builtin_convertvector(result, Shorts);
        std::memcpy(to, &shorts, sizeof shorts);
    }
};

template <class Format>
constexpr std::size_t lanes = Machine::vector_bytes / sizeof(typename Format::Work);

// With `count` lanes a whole vector; less for the end of a buffer.
template <class Format>
[[gnu::always_inline]] inline Vector<typename Format::Work> load(const std::byte* from,
                                                                 std::size_t count) {
    if (count == lanes<Format>) return Format::load(from);
    std::byte padded[lanes<Format> * Format::bytes] = {};
    std::memcpy(padded, from, count * Format::bytes);
    return Format::load(padded);
}
template <class Format>
[[gnu::always_inline]] inline void store(std::byte* to, std::size_t count,
                                         Vector<typename Format::Work> value) {
    if (count == lanes<Format>) return Format::store(to, value);
    std::byte padded[lanes<Format> * Format::bytes];
    Format::store(padded, value);
    std::memcpy(to, padded, count * Format::bytes);
}

}  // namespace
}  // namespace ddp::backends
