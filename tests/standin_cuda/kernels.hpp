// The kernels of a .cu file that the host's compiler has read, by their addresses. A file that
// includes one names its kernels:
//
//   #include "standin_cuda/kernel_language.hpp"
//   #include "tensor/device/pack_kernels.cu"
//   const ddp::standin_cuda::Kernels kernels{&move_items<float, Multiply>, ...};
//
// A launch of one that is not named fails: "invalid device function".
#pragma once

#include "standin_cuda/kernel_language.hpp"

#include <functional>
#include <tuple>
#include <utility>

namespace ddp::standin_cuda {

struct Kernel {
    // Copies the parameters, as a launch does; what comes back is one thread of the grid.
    std::function<std::function<void()>(void** parameters)> bind;
    bool synchronises = false;  // it calls __syncthreads
    unsigned most_threads = 1024;
};

void register_kernel(const void* address, Kernel kernel);

template <class... Parameters>
Kernel kernel_of(void (*function)(Parameters...)) {
    return {.bind = [function](void** parameters) -> std::function<void()> {
        return [&]<std::size_t... at>(std::index_sequence<at...>) {
            using Values = std::tuple<std::remove_cv_t<Parameters>...>;
            return [function, values = Values(*static_cast<std::remove_cv_t<Parameters>*>(
                                  parameters[at])...)] { std::apply(function, values); };
        }
        (std::index_sequence_for<Parameters...>());
    }};
}

// At start, before main. `most_threads`: of __launch_bounds__.
class Kernels {
public:
    template <class... Functions>
    explicit Kernels([[maybe_unused]] unsigned most_threads, Functions... functions) {
        (add(functions, most_threads, false), ...);
    }
    template <class Function>
    Kernels& synchronising(Function function, unsigned most_threads) {
        add(function, most_threads, true);
        return *this;
    }

private:
    template <class Function>
    void add(Function function, unsigned most_threads, bool synchronises) {
        Kernel kernel = kernel_of(function);
        kernel.most_threads = most_threads;
        kernel.synchronises = synchronises;
        register_kernel(reinterpret_cast<const void*>(function), std::move(kernel));
    }
};

// All blocks of the grid, on this thread.
void run_grid(const std::function<void()>& thread, bool synchronises, dim3 grid, dim3 block);

// kernel<<<grid, block, shared, stream>>>(values...), see kernel_language.hpp.
class Launch {
public:
    Launch(dim3 grid, dim3 block, std::size_t shared = 0, cudaStream_t stream = nullptr)
        : grid_(grid), block_(block), shared_(shared), stream_(stream) {}
    // The error stays behind for cudaGetLastError, as that syntax has it.
    template <class... Parameters, class... Values>
    void operator()(void (*kernel)(Parameters...), Values&&... values) const {
        std::tuple<std::remove_cv_t<Parameters>...> held(std::forward<Values>(values)...);
        std::apply(
            [&](auto&... each) {
                void* parameters[] = {static_cast<void*>(&each)...};
                static_cast<void>(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid_,
                                                   block_, parameters, shared_, stream_));
            },
            held);
    }

private:
    dim3 grid_, block_;
    std::size_t shared_;
    cudaStream_t stream_;
};

}  // namespace ddp::standin_cuda
