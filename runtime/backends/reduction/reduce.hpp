// The arithmetic of the CPU backends: element-wise reduction of one buffer a rank, always in the
// order of the balanced binary tree over ranks, ((0+1)+(2+3))+..., so that who computes it, and in
// what chunks, never changes a bit. A number of ranks that is no power of two splits at the largest
// power below it. Half types are widened to float32, added there, and rounded once, at the end.
//
// Each kernel exists twice, from one source: for any x86-64 (or other) processor, and for AVX2 with
// F16C, chosen at run time. Both give the same bits (NaNs: both give some NaN).
#pragma once

#include <ddp/reduce_op.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::backends {

// How results are written. `streaming` goes past the caches (non-temporal): for data that exceeds
// them, or that another core reads next. `string` is of copies alone, by the processor's own. Same
// bytes in each way.
enum class Store : std::uint8_t { cached, streaming, string };

struct Reduction {
    DType dtype = DType::float32;
    ReduceOp::Kind op = ReduceOp::sum;
    // premul_sum: one factor an input; else empty.
    std::span<const double> factors{};
};

// output[k][i] = op over inputs[0][i], inputs[1][i], ..., for each output k; avg divides the sum by
// the number of inputs. At least one input and one output. Pointers need no alignment. An output
// may be one of the inputs (the same address); they overlap in no other way. Never allocates.
void reduce(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
            std::size_t elements, const Reduction& how, Store store = Store::cached);

// Sums whose subtrees are added in several places travel in the type that numbers are added in:
// float32 for the half types, else the type itself.
DType sum_type(DType dtype) noexcept;
// From a half type to float32, times `factor`.
void widen(void* to, const void* from, std::size_t elements, DType dtype, double factor = 1);
// From sum_type(dtype) to `dtype`: divided by `divisor`, then rounded. The two may be the same
// memory where the types are the same.
void finish_sum(void* to, const void* from, std::size_t elements, DType dtype, std::size_t divisor);

// The two are the same memory or do not overlap. Zero bytes: null is fine.
void copy(void* to, const void* from, std::size_t bytes, Store store = Store::cached);

// Prefetches the lines of that memory into this core's cache for writing (exclusive state). A hint;
// returns before they have come.
void prefetch_for_write(void* memory, std::size_t bytes);

// For tests: which kernels run from now on. `automatic` is what the processor can do.
enum class Kernels : std::uint8_t { automatic, scalar, avx2 };
// False when the processor cannot run them; nothing has changed then.
bool use_kernels(Kernels kernels) noexcept;

}  // namespace ddp::backends
