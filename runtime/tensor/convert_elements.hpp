// Elements of one dtype made those of another, on the CPU.
#pragma once

#include <ddp/tensor_view.hpp>

namespace ddp::device {

// As many elements, both on the CPU. Half types go through float, bool is whether it is not zero;
// floating point is truncated to integers, and integers that do not fit wrap. A number beyond int64
// and NaN become some integer, as in PyTorch, where it depends on the processor.
void convert_elements(const TensorView& from, const TensorView& to);

}  // namespace ddp::device
