// Elements of one dtype made those of another.
#pragma once

#include <ddp/tensor.hpp>

namespace ddp::checkpoint {

// As many elements, both on the CPU. Half types go through float, bool is whether it is not zero;
// integers that do not fit wrap. Not from floating point to integers.
void convert_elements(const TensorView& from, const TensorView& to);

}  // namespace ddp::checkpoint
