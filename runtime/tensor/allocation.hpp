// Memory of tensors, on any device.
#pragma once

#include <ddp/tensor.hpp>

namespace ddp::device {

enum class HostMemory { ordinary, pinned };

// Of any contents, aligned to 64 bytes at least. Throws UsageError for a device that is not there,
// a shape beyond all memory and pinned memory that is not the CPU's or has no GPU to serve;
// SystemError with ENOMEM, which names bytes and device, where there is not enough.
Tensor allocate(const Shape& shape, DType dtype, const Device& device,
                HostMemory host = HostMemory::ordinary);

// With all bits zero.
void set_zero(const TensorView& tensor);

}  // namespace ddp::device
