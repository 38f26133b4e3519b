// Parts of tensors as blocks of contiguous memory: what `narrow` and `cat` copy.
#pragma once

#include "tensor/device/device_api.hpp"

#include <ddp/tensor_view.hpp>

#include <cstddef>
#include <span>

namespace ddp::device {

// A dimension as PyTorch counts it: -1 is the last. Throws UsageError, beginning with `call`.
std::size_t dimension(const Shape& shape, int dim, const char* call);
// The shape with another extent in this dimension.
Shape with_extent(const Shape& shape, std::size_t dim, std::int64_t extent);
// Elements of one index of the dimension, and how many times all of them stand one after the other.
std::size_t inner_of(const Shape& shape, std::size_t dim);
std::size_t outer_of(const Shape& shape, std::size_t dim);

// packed[item.offset + i] = item.data[i]; all on the packed tensor's device.
void copy_blocks(std::span<const PackItem> items, const TensorView& packed);

}  // namespace ddp::device
