// The arithmetic of the shm backend: element-wise reduction of one buffer a rank, always in the
// order of the balanced binary tree over ranks, ((0+1)+(2+3))+..., so that who computes it, and in
// what chunks, never changes a bit. A number of ranks that is no power of two splits at the largest
// power below it.
#pragma once

#include <ddp/reduce_op.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <span>

namespace ddp::shm {

// output[i] = op over inputs[0][i], inputs[1][i], ...; avg divides the sum by the number of inputs.
// Inputs are aligned to their element size; output need not be and may be one of the inputs.
void reduce(std::span<const std::byte* const> inputs, std::byte* output, std::size_t elements,
            DType dtype, ReduceOp op);

}  // namespace ddp::shm
