// The elements that are measured and checked, in any dtype and for any reduction: small integers
// whose reductions are exact (only averages are compared up to the last bit).
#pragma once

#include "bench/pattern.hpp"

#include <ddp/dtype.hpp>
#include <ddp/reduce_op.hpp>

#include <cstddef>
#include <vector>

namespace ddp::bench {

// Rank r's pattern for each r.
std::vector<Pattern> make_patterns(DType dtype, ReduceOp op, int ranks);

// The pattern of their reduction.
Pattern reduce_patterns(DType dtype, ReduceOp op, const std::vector<Pattern>& patterns);

// Elements of `got` that differ from what must be there.
std::size_t count_wrong(const std::byte* got, const Stretch& expected, DType dtype, ReduceOp op);

}  // namespace ddp::bench
