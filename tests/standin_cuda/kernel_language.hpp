// What a .cu file finds when the host's compiler reads it: threadIdx and its like, and CUDA's
// words. A thread of a grid is a call of the kernel, one after the other; a kernel that calls
// __syncthreads runs each thread of a block as a fibre (fibres.hpp). A launch in angle brackets is
// no C++: host_source.cmake writes `::ddp::standin_cuda::Launch(grid, block)(kernel, a, b)` instead.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cmath>
#include <cstddef>

#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
// A block runs on one thread of the host from its begin to its end.
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__

namespace ddp::standin_cuda {

struct Place {
    uint3 thread{};
    uint3 block{};
    dim3 block_size;
    dim3 grid_size;
};
inline thread_local Place place;

void synchronise_block();
// Fills a variable in shared memory with bytes that are no number, once for each block.
void poison_shared(void* variable, std::size_t bytes);

}  // namespace ddp::standin_cuda

#define threadIdx (::ddp::standin_cuda::place.thread)
#define blockIdx (::ddp::standin_cuda::place.block)
#define blockDim (::ddp::standin_cuda::place.block_size)
#define gridDim (::ddp::standin_cuda::place.grid_size)

inline void __syncthreads() { ::ddp::standin_cuda::synchronise_block(); }
