// Torch tensors as ddp sees them, and the two collectives that programs call on them by hand. For
// the others: group.all_gather(view(a), view(b)).
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/tensor.hpp>
#include <ddp/torch/detail/stream.hpp>

#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <span>
#include <sstream>
#include <string>

namespace ddp::libtorch {

// "float32 [3, 5] on cpu", for messages.
inline std::string describe(const torch::Tensor& tensor) {
    std::ostringstream text;
    text << tensor.scalar_type() << ' ' << tensor.sizes() << " on " << tensor.device();
    return text.str();
}

namespace detail {

// Throws UsageError for types that no collective knows: complex, quantised.
inline DType tensor_dtype(const torch::Tensor& tensor) {
    const auto type = tensor.scalar_type();
    if (type == torch::kFloat32) return DType::float32;
    if (type == torch::kFloat64) return DType::float64;
    if (type == torch::kFloat16) return DType::float16;
    if (type == torch::kBFloat16) return DType::bfloat16;
    if (type == torch::kInt64) return DType::int64;
    if (type == torch::kInt32) return DType::int32;
    if (type == torch::kInt16) return DType::int16;
    if (type == torch::kInt8) return DType::int8;
    if (type == torch::kUInt8) return DType::uint8;
    if (type == torch::kBool) return DType::boolean;
    throw UsageError("libtorch: a tensor " + describe(tensor) +
                     " cannot be sent; convert it to a real type, or pass torch::view_as_real()");
}

inline Device tensor_device(const torch::Tensor& tensor) {
    if (tensor.is_cpu()) return {};
    if (tensor.is_cuda()) return {DeviceType::cuda, static_cast<int>(tensor.get_device())};
    throw UsageError("libtorch: a tensor " + describe(tensor) + " is neither on the CPU nor CUDA");
}

}  // namespace detail

// For torch's `.to()`: net->to(torch_device(group.device())). Every CPU device is torch's one CPU.
inline torch::Device torch_device(Device device) {
    if (device.type == DeviceType::cpu) return torch::kCPU;
    return {torch::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

// The tensor's elements, in the order of their memory, whatever its strides: for tensors without
// holes. More than Shape::max_dims dimensions become one.
inline TensorView memory_view(const torch::Tensor& tensor) {
    if (tensor.layout() != torch::kStrided || !tensor.is_non_overlapping_and_dense()) {
        throw UsageError("libtorch: a tensor " + describe(tensor) +
                         " is sparse, or has holes or shared elements; use a dense copy");
    }
    const auto sizes = tensor.sizes();
    const Shape shape = sizes.size() <= Shape::max_dims
                            ? Shape(std::span<const std::int64_t>(sizes.data(), sizes.size()))
                            : Shape{tensor.numel()};
    return {tensor.data_ptr(), shape, detail::tensor_dtype(tensor), detail::tensor_device(tensor)};
}

// Borrowed: the tensor must live until the Work on the view is done. Throws UsageError for a tensor
// that is not contiguous.
inline TensorView view(const torch::Tensor& tensor) {
    if (tensor.layout() == torch::kStrided && !tensor.is_contiguous()) {
        throw UsageError("libtorch: a tensor " + describe(tensor) +
                         " is not contiguous; pass tensor.contiguous()");
    }
    return memory_view(tensor);
}

namespace detail {

// Runs `collective(view, stream)` on the tensor, or on a contiguous copy that is then copied back,
// and waits. Autograd learns that the tensor changed.
template <class Collective>
void run_in_place(const torch::Tensor& tensor, Collective collective) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor contiguous = tensor.detach().contiguous();
    const Stream stream = current_stream(tensor_device(tensor));
    collective(view(contiguous), stream).wait(stream);
    if (contiguous.data_ptr() == tensor.data_ptr()) {
        torch::autograd::impl::bump_version(tensor);
    } else {
        tensor.detach().copy_(contiguous);
    }
}

}  // namespace detail

// Replaces the tensor on every rank by the reduction over all ranks, on torch's current stream;
// blocks for CPU memory. Any strides. Without blocking: group.all_reduce(view(tensor), op).
inline void all_reduce(ProcessGroup& group, const torch::Tensor& tensor,
                       ReduceOp op = ReduceOp::sum, const CallSite& site = CallSite::here()) {
    detail::run_in_place(tensor, [&](const TensorView& elements, Stream stream) {
        return group.all_reduce(elements, op, stream, site);
    });
}

// Copies root's tensor to all ranks; otherwise as all_reduce.
inline void broadcast(ProcessGroup& group, const torch::Tensor& tensor, Root root = {},
                      const CallSite& site = CallSite::here()) {
    detail::run_in_place(tensor, [&](const TensorView& elements, Stream stream) {
        return group.broadcast(elements, root, stream, site);
    });
}

}  // namespace ddp::libtorch
