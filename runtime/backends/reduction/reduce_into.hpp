// A reduction into several outputs at once, straight from registers: what zero copy does, where the
// outputs are the inputs and lie in other cores' caches. Included by reduce_blocks.hpp.
#pragma once

#include "backends/reduction/reduce_kernel_set.hpp"
#include "backends/reduction/reduce_tree.hpp"

namespace ddp::backends {
namespace {

constexpr std::size_t line_bytes = 64;  // of the caches
// How far ahead lines are asked for, to be written. On Zen 4 128 to 384 bytes do alike; with eight
// streams 1,024 took a fifth to a third longer.
constexpr std::size_t ahead = 256;

// Asks for the lines to be ours alone, for what is written there next.
void prefetch_all_for_write(std::byte* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += line_bytes) Machine::prefetch_to_write(at + i);
}

// The same into several outputs, in place or not. Their lines are asked for a little ahead, to be
// ours alone: where another core has them, they come over once, and not first to be read as inputs
// and then again to be written.
template <class Format, class Op, std::size_t n, std::size_t outputs, class Finish>
void combine_into(const Job& job, Finish finish) {
    using Work = typename Format::Work;
    constexpr std::size_t vector_bytes = lanes<Format> * Format::bytes;
    constexpr std::size_t line = line_bytes;
    const std::byte* in[n];
    std::byte* out[outputs];
    for (std::size_t r = 0; r < n; ++r) in[r] = job.inputs[r];
    for (std::size_t k = 0; k < outputs; ++k) out[k] = job.outputs[k];
    const std::size_t bytes = job.elements * Format::bytes;
    std::size_t at = 0;
    for (; at + line <= bytes; at += line) {
#pragma GCC unroll 8
        for (std::size_t k = 0; k < outputs; ++k) Machine::prefetch_to_write(out[k] + at + ahead);
        Vector<Work> results[line / vector_bytes];
#pragma GCC unroll 8
        for (std::size_t u = 0; u < line / vector_bytes; ++u) {
            results[u] = finish.template apply<Work>(
                in_registers<Format, Op, 0, n>(in, at + u * vector_bytes));
        }
#pragma GCC unroll 8
        for (std::size_t k = 0; k < outputs; ++k) {
#pragma GCC unroll 8
            for (std::size_t u = 0; u < line / vector_bytes; ++u) {
                Format::store(out[k] + at + u * vector_bytes, results[u]);
            }
        }
    }
    for (std::size_t r = 0; r < n; ++r) in[r] += at;
    combine_rest<Format, Format, Op, n>(in, out[0] + at, (bytes - at) / Format::bytes, finish);
    for (std::size_t k = 1; k < outputs; ++k) std::memcpy(out[k] + at, out[0] + at, bytes - at);
}

// Into two outputs, or as many as there are inputs. False when it is another number.
template <class Format, class Op, Finishing finishing, std::size_t n = at_once<Format, Op>>
bool combine_few_into(const Job& job) {
    if (job.input_count == n) {
        const auto run = [&](auto finish) {
            if (job.output_count == 2) {
                combine_into<Format, Op, n, 2>(job, finish);
            } else if (job.output_count == n) {
                combine_into<Format, Op, n, n>(job, finish);
            } else {
                return false;
            }
            return true;
        };
        if constexpr (finishing == Finishing::keep) {
            return run(Keep{});
        } else if constexpr (finishing == Finishing::average) {
            return run(Divide<std::integral_constant<std::size_t, n>>{});
        } else {
            return run(Multiply{job.factors[0]});
        }
    } else if constexpr (n > 1) {
        return combine_few_into<Format, Op, finishing, n - 1>(job);
    }
    return false;
}

}  // namespace
}  // namespace ddp::backends
