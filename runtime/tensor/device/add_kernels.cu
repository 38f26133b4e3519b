// Adding is limited by memory: each thread adds elements one after the other, from all memories.
#include "tensor/device/device_kernels.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace ddp::device {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned blocks_per_multiprocessor = 8;
constexpr unsigned levels = 7;  // of a tree over most_added

struct Inputs {
    const void* at[most_added];
    unsigned count;
};
static_assert((1U << (levels - 1)) == most_added);

// What an element is added in.
template <class T>
using Work = std::conditional_t<sizeof(T) == 2 && !std::is_integral_v<T>, float, T>;

__device__ float to_work(__half value) { return __half2float(value); }
__device__ float to_work(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T>
__device__ T to_work(T value) {
    return value;
}
template <class T>
__device__ T from_work(Work<T> value) {
    if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(value);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(value);
    } else {
        return value;
    }
}

// The balanced tree over the inputs, the order of backends::reduce: as a binary counter counts
// them, sums[k] is that of the 2^k inputs before, and as many equal ones become one. What is left
// in the end is added from the last on.
template <class T>
__device__ T sum_at(const Inputs& inputs, std::size_t index) {
    Work<T> sums[levels];
    for (unsigned n = 0; n < inputs.count; ++n) {
        Work<T> sum = to_work(static_cast<const T*>(inputs.at[n])[index]);
        unsigned level = 0;
        for (; (n >> level) % 2 != 0; ++level) sum = static_cast<Work<T>>(sums[level] + sum);
        sums[level] = sum;
    }
    unsigned level = 0;
    while ((inputs.count >> level) % 2 == 0) ++level;
    Work<T> sum = sums[level];
    for (++level; inputs.count >> level != 0; ++level) {
        if ((inputs.count >> level) % 2 != 0) sum = static_cast<Work<T>>(sums[level] + sum);
    }
    return from_work<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(threads)
    add_memories(const __grid_constant__ Inputs inputs, T* const sum, const std::size_t elements) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    std::size_t index = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; index < elements; index += stride) sum[index] = sum_at<T>(inputs, index);
}

template <class T>
const void* kernel() {
    return reinterpret_cast<const void*>(&add_memories<T>);
}

// Null for those that are not added. Signed integers wrap as unsigned ones.
const void* kernel_for(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return kernel<float>();
        case DType::float64:
            return kernel<double>();
        case DType::float16:
            return kernel<__half>();
        case DType::bfloat16:
            return kernel<__nv_bfloat16>();
        case DType::uint8:
        case DType::int8:
            return kernel<std::uint8_t>();
        case DType::int16:
            return kernel<std::uint16_t>();
        case DType::int32:
            return kernel<std::uint32_t>();
        case DType::int64:
            return kernel<std::uint64_t>();
        case DType::boolean:
            break;
    }
    return nullptr;
}

}  // namespace

cudaError_t load_add_kernels() {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                              DType::uint8, DType::int16, DType::int32, DType::int64}) {
        cudaFuncAttributes attributes;
        const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel_for(dtype));
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t launch_add(std::span<const void* const> memories, void* sum, std::size_t elements,
                       DType dtype, const LaunchConfig& config) {
    const void* const function = kernel_for(dtype);
    if (function == nullptr) return cudaErrorInvalidValue;
    if (elements == 0) return cudaSuccess;
    Inputs inputs;
    inputs.count = static_cast<unsigned>(memories.size());
    std::copy(memories.begin(), memories.end(), inputs.at);
    const std::size_t most = std::size_t{config.multiprocessors} * blocks_per_multiprocessor;
    const std::size_t blocks = std::min((elements + threads - 1) / threads, most);
    void* parameters[] = {&inputs, &sum, &elements};
    return cudaLaunchKernel(function, static_cast<unsigned>(blocks), threads, parameters, 0,
                            config.stream);
}

}  // namespace ddp::device
