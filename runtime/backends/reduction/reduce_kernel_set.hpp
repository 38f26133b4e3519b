// What one build of the reduction kernels offers, as plain data: the source of the kernels
// (reduce_kernels.hpp) is compiled once for each kind of processor, and code built for a newer one
// must not reach the others. So such a file shares nothing but these functions with the rest: all
// else in it has internal linkage, and it calls no inline function of other headers, which the
// linker might keep for everybody.
#pragma once

#include "backends/reduction/reduce.hpp"

#include <cstddef>

namespace ddp::backends {

struct Job {
    DType dtype;        // never boolean: those are uint8, with the operation that does the same
    ReduceOp::Kind op;  // bit operations: on uint8 only
    Store store;
    const std::byte* const* inputs;
    std::size_t input_count;  // at most max_inputs
    std::byte* const* outputs;
    std::size_t output_count;
    std::size_t elements;
    const double* factors;  // of premul_sum
};
inline constexpr std::size_t max_inputs = 4096;

// Of one buffer, between a type and what it is added in.
struct Conversion {
    DType dtype;
    std::byte* to;
    const std::byte* from;
    std::size_t elements;
    double factor = 1;
    std::size_t divisor = 1;
};

struct KernelSet {
    void (*reduce)(const Job&);
    void (*widen)(const Conversion&);       // half types
    void (*finish_sum)(const Conversion&);  // never boolean
    void (*stream)(std::byte* to, const std::byte* from, std::size_t bytes);
    void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);  // no overlap
    void (*prefetch_for_write)(std::byte* at, std::size_t bytes);
};

const KernelSet& baseline_kernels() noexcept;
const KernelSet* avx2_kernels() noexcept;  // null: the processor cannot run them

}  // namespace ddp::backends
