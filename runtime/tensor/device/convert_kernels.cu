// Conversions between all dtypes: a kernel for each that is read, which branches once by the one
// that is written. A kernel for each pair would be 100 of them, and the CUDA runtime takes note of
// each when the program starts.
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
constexpr std::size_t group = 4;  // elements of a thread at a time, where alignment allows it

template <class T>
struct alignas(group * sizeof(T)) Group {
    T at[group];
};

__device__ float widened(__half value) { return __half2float(value); }
__device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T>
__device__ T widened(T value) {
    return value;
}

// As a C++ conversion; to and from 16 bits by way of float32.
template <class To, class From>
__device__ To converted(From value) {
    const auto wide = widened(value);
    if constexpr (std::is_same_v<To, __half>) {
        return __float2half_rn(static_cast<float>(wide));
    } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
        return __float2bfloat16_rn(static_cast<float>(wide));
    } else {
        return static_cast<To>(wide);
    }
}

template <class From, class To>
__device__ void convert_elements(const From* from, To* to, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * threads;
    const std::size_t own = static_cast<std::size_t>(blockIdx.x) * threads + threadIdx.x;
    const bool aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(Group<From>) == 0 &&
                         reinterpret_cast<std::uintptr_t>(to) % sizeof(Group<To>) == 0;
    const std::size_t groups = aligned ? count / group : 0;
    for (std::size_t at = own; at < groups; at += stride) {
        const Group<From> read = reinterpret_cast<const Group<From>*>(from)[at];
        Group<To> written;
#pragma unroll
        for (std::size_t i = 0; i < group; ++i) written.at[i] = converted<To>(read.at[i]);
        reinterpret_cast<Group<To>*>(to)[at] = written;
    }
    for (std::size_t at = groups * group + own; at < count; at += stride) {
        to[at] = converted<To>(from[at]);
    }
}

// Calls `visit` with a null pointer to what the card calls the dtype.
#pragma nv_exec_check_disable
template <class Visit>
__host__ __device__ auto with_type(DType dtype, Visit visit) {
    switch (dtype) {
        case DType::float32:
            return visit(static_cast<float*>(nullptr));
        case DType::float64:
            return visit(static_cast<double*>(nullptr));
        case DType::int32:
            return visit(static_cast<std::int32_t*>(nullptr));
        case DType::int64:
            return visit(static_cast<std::int64_t*>(nullptr));
        case DType::uint8:
            return visit(static_cast<std::uint8_t*>(nullptr));
        case DType::float16:
            return visit(static_cast<__half*>(nullptr));
        case DType::bfloat16:
            return visit(static_cast<__nv_bfloat16*>(nullptr));
        case DType::int8:
            return visit(static_cast<std::int8_t*>(nullptr));
        case DType::int16:
            return visit(static_cast<std::int16_t*>(nullptr));
        case DType::boolean:
            break;
    }
    return visit(static_cast<bool*>(nullptr));
}

template <class From>
struct ConvertTo {
    const From* from;
    void* to;
    std::size_t count;
    template <class To>
    __device__ void operator()(To*) const {
        convert_elements(from, static_cast<To*>(to), count);
    }
};

template <class From>
__global__ void __launch_bounds__(threads)
    convert(const From* from, void* to, DType to_dtype, std::size_t count) {
    with_type(to_dtype, ConvertTo<From>{from, to, count});
}

struct KernelOf {
    template <class From>
    const void* operator()(From*) const {
        return reinterpret_cast<const void*>(&convert<From>);
    }
};

}  // namespace

cudaError_t load_convert_kernels() {
    for (const DType from :
         {DType::float32, DType::float64, DType::int32, DType::int64, DType::uint8, DType::float16,
          DType::bfloat16, DType::int8, DType::int16, DType::boolean}) {
        cudaFuncAttributes attributes;
        const void* const one = with_type(from, KernelOf{});
        if (const cudaError_t error = cudaFuncGetAttributes(&attributes, one)) return error;
    }
    return cudaSuccess;
}

cudaError_t launch_convert(const TensorView& from, const TensorView& to,
                           const LaunchConfig& config) {
    std::size_t count = from.numel();
    if (count == 0) return cudaSuccess;
    const std::size_t wanted = (count + threads * group - 1) / (threads * group);
    const std::size_t most = std::size_t{config.multiprocessors} * blocks_per_multiprocessor;
    const void* source = from.data;
    void* target = to.data;
    DType target_dtype = to.dtype;
    void* parameters[] = {&source, &target, &target_dtype, &count};
    return cudaLaunchKernel(with_type(from.dtype, KernelOf{}),
                            static_cast<unsigned>(std::min(wanted, most)), threads, parameters, 0,
                            config.stream);
}

}  // namespace ddp::device
