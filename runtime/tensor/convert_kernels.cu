// Conversions between all dtypes, a kernel for each pair.
#include "tensor/device_kernels.hpp"

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
__global__ void __launch_bounds__(threads) convert(const From* from, To* to, std::size_t count) {
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

// Calls `visit` with a std::type_identity of what the card calls the dtype.
template <class Visit>
const void* with_type(DType dtype, Visit visit) {
    switch (dtype) {
        case DType::float32:
            return visit(std::type_identity<float>{});
        case DType::float64:
            return visit(std::type_identity<double>{});
        case DType::int32:
            return visit(std::type_identity<std::int32_t>{});
        case DType::int64:
            return visit(std::type_identity<std::int64_t>{});
        case DType::uint8:
            return visit(std::type_identity<std::uint8_t>{});
        case DType::float16:
            return visit(std::type_identity<__half>{});
        case DType::bfloat16:
            return visit(std::type_identity<__nv_bfloat16>{});
        case DType::int8:
            return visit(std::type_identity<std::int8_t>{});
        case DType::int16:
            return visit(std::type_identity<std::int16_t>{});
        case DType::boolean:
            return visit(std::type_identity<bool>{});
    }
    return nullptr;
}

template <class From>
const void* kernel_from(DType to) {
    return with_type(to, [](auto type) {
        using To = typename decltype(type)::type;
        return reinterpret_cast<const void*>(&convert<From, To>);
    });
}

const void* kernel_for(DType from, DType to) {
    return with_type(from,
                     [&](auto type) { return kernel_from<typename decltype(type)::type>(to); });
}

}  // namespace

cudaError_t launch_convert(const TensorView& from, const TensorView& to, const LaunchPlace& place) {
    std::size_t count = from.numel();
    if (count == 0) return cudaSuccess;
    const std::size_t wanted = (count + threads * group - 1) / (threads * group);
    const std::size_t most = std::size_t{place.multiprocessors} * blocks_per_multiprocessor;
    const void* source = from.data;
    void* target = to.data;
    void* parameters[] = {&source, &target, &count};
    return cudaLaunchKernel(kernel_for(from.dtype, to.dtype),
                            static_cast<unsigned>(std::min(wanted, most)), threads, parameters, 0,
                            place.stream);
}

}  // namespace ddp::device
