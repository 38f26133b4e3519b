// The examples' kernels and net as the host's compiler reads them.
#include "standin_cuda/kernels.hpp"

#include "cuda_kernels.host.hpp"
#include "nn/cuda_mlp.cu"

namespace nn::gpu {
namespace {

const ddp::standin_cuda::Kernels kernels =
    ddp::standin_cuda::Kernels(threads, &linear_kernel, &gradients_kernel, &input_gradient_kernel,
                               &sgd_kernel)
        .synchronising(&cross_entropy_kernel, threads);

}  // namespace
}  // namespace nn::gpu
