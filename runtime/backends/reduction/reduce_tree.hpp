// The balanced tree over the inputs: up to a few of them in registers, more in blocks that stay in
// the first-level cache. Included by each source of kernels, after its Machine.
#pragma once

#include "backends/reduction/reduce_kernel_set.hpp"
#include "backends/reduction/reduce_operations.hpp"

namespace ddp::backends {
namespace {

// The first input of the right half of `count`: the largest power of two below it.
constexpr std::size_t middle_of(std::size_t count) {
    std::size_t middle = 1;
    while (middle * 2 < count) middle *= 2;
    return middle;
}

template <class Format, class Op, std::size_t low, std::size_t high>
[[gnu::always_inline]] inline Vector<typename Format::Work> in_registers(
    const std::byte* const* inputs, std::size_t offset) {
    if constexpr (high - low == 1) {
        return Format::load(inputs[low] + offset);
    } else {
        constexpr std::size_t middle = low + middle_of(high - low);
        return Op::template apply<typename Format::Work>(
            in_registers<Format, Op, low, middle>(inputs, offset),
            in_registers<Format, Op, middle, high>(inputs, offset));
    }
}

// What is left of the inputs, one vector at a time; the last may be a part of one.
template <class From, class To, class Op, std::size_t n, class Finish>
[[gnu::always_inline]] inline void combine_rest(const std::byte* const* inputs, std::byte* out,
                                                std::size_t elements, Finish finish) {
    using Work = typename From::Work;
    constexpr std::size_t step = lanes<From>;
    std::byte padded[n][step * From::bytes];
    std::byte padded_out[step * To::bytes];
    for (std::size_t i = 0; i < elements; i += step) {
        const std::size_t count = elements - i;
        const bool whole = count >= step;
        const std::byte* in[n];
        for (std::size_t r = 0; r < n; ++r) {
            in[r] = inputs[r] + i * From::bytes;
            if (whole) continue;
            std::memset(padded[r], 0, sizeof padded[r]);
            std::memcpy(padded[r], in[r], count * From::bytes);
            in[r] = padded[r];
        }
        std::byte* const to = out + i * To::bytes;
        To::store(whole ? to : padded_out,
                  finish.template apply<Work>(in_registers<From, Op, 0, n>(in, 0)));
        if (!whole) std::memcpy(to, padded_out, count * To::bytes);
    }
}

// out = finish(op over inputs[0], ... inputs[n - 1]), each from its element `first` on.
template <class From, class To, class Op, std::size_t n, class Finish>
[[gnu::noinline]] void combine(const std::byte* const* inputs, std::size_t first, std::byte* out,
                               std::size_t elements, Finish finish) {
    using Work = typename From::Work;
    constexpr std::size_t unrolled = n <= 2 ? 4 : 2;
    constexpr std::size_t step = lanes<From>;
    const std::byte* in[n];
    for (std::size_t r = 0; r < n; ++r) in[r] = inputs[r] + first * From::bytes;
    std::size_t i = 0;
    for (; i + unrolled * step <= elements; i += unrolled * step) {
        // All are read before one is written: the output may be an input.
        Vector<Work> results[unrolled];
#pragma GCC unroll 4
        for (std::size_t u = 0; u < unrolled; ++u) {
            results[u] = finish.template apply<Work>(
                in_registers<From, Op, 0, n>(in, (i + u * step) * From::bytes));
        }
#pragma GCC unroll 4
        for (std::size_t u = 0; u < unrolled; ++u) {
            To::store(out + (i + u * step) * To::bytes, results[u]);
        }
    }
    for (const std::byte*& from : in) from += i * From::bytes;
    combine_rest<From, To, Op, n>(in, out + i * To::bytes, elements - i, finish);
}

// How many inputs are combined in registers: the frequent case is worth its code.
template <class Format, class Op>
constexpr std::size_t at_once =
    std::is_same_v<Op, Sum>&& std::is_floating_point_v<typename Format::Work> ? 8 : 2;

enum class Finishing { keep, average, premultiply };

template <class From, class To, class Op, Finishing finishing, std::size_t n = at_once<From, Op>>
void combine_few(const Job& job, std::size_t low, std::size_t high, std::size_t first,
                 std::byte* out, std::size_t elements) {
    if (high - low == n) {
        if constexpr (finishing == Finishing::keep) {
            combine<From, To, Op, n>(job.inputs + low, first, out, elements, Keep{});
        } else if constexpr (finishing == Finishing::average) {
            using Fixed = std::integral_constant<std::size_t, n>;
            combine<From, To, Op, n>(job.inputs + low, first, out, elements, Divide<Fixed>{});
        } else {
            const Multiply by{job.factors[low]};
            combine<From, To, Op, n>(job.inputs + low, first, out, elements, by);
        }
    } else if constexpr (n > 1) {
        combine_few<From, To, Op, finishing, n - 1>(job, low, high, first, out, elements);
    }
}

}  // namespace
}  // namespace ddp::backends
