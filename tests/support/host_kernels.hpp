// The kernels of the device API as plain loops.
#pragma once

#include "tensor/device/device_api.hpp"

#include <vector>

namespace ddp::testing::host_kernels {

void scale(const TensorView& values, double factor);
void pack(const std::vector<device::PackItem>& items, const TensorView& packed, double factor);
void add(const std::vector<const void*>& memories, const TensorView& sum);
void unpack(const TensorView& packed, const std::vector<device::PackItem>& items);
void pack_widened(const std::vector<device::PackItem>& items, DType dtype, const TensorView& packed,
                  double factor);
void unpack_rounded(const TensorView& packed, const std::vector<device::PackItem>& items,
                    DType dtype);
void convert(const TensorView& from, const TensorView& to);

}  // namespace ddp::testing::host_kernels
