// The launches of ddp's own CUDA kernels; device_api_cuda.cpp alone calls them, with the stream's
// device current and arguments that it has checked. Element-wise, and limited by memory alone.
#pragma once

#include "tensor/device/device_api.hpp"

#include <cuda_runtime_api.h>

#include <span>

namespace ddp::device {

struct LaunchConfig {
    cudaStream_t stream;
    unsigned multiprocessors;  // of its device
};

// All of them, on the current device.
cudaError_t load_pack_kernels();
cudaError_t load_convert_kernels();
cudaError_t load_add_kernels();

// packed[offset + i] = data[i] * factor. With a factor of 1 the bits are copied, of any dtype;
// with another one the dtype is a floating-point one.
cudaError_t launch_pack(std::span<const PackItem> items, void* packed, DType dtype, double factor,
                        const LaunchConfig& config);
// data[i] = packed[offset + i], of any dtype.
cudaError_t launch_unpack(const void* packed, std::span<const PackItem> items, DType dtype,
                          const LaunchConfig& config);
// Likewise of float16 or bfloat16 in a packed float32: widened, times the factor; rounded back.
cudaError_t launch_pack_widened(std::span<const PackItem> items, DType dtype, void* packed,
                                double factor, const LaunchConfig& config);
cudaError_t launch_unpack_rounded(const void* packed, std::span<const PackItem> items, DType dtype,
                                  const LaunchConfig& config);
// Between any two dtypes.
cudaError_t launch_convert(const TensorView& from, const TensorView& to,
                           const LaunchConfig& config);
// sum[i] = memories[0][i] + memories[1][i] + ..., at most most_added; not of booleans.
cudaError_t launch_add(std::span<const void* const> memories, void* sum, std::size_t elements,
                       DType dtype, const LaunchConfig& config);

}  // namespace ddp::device
