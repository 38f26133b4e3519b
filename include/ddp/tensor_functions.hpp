// What makes tensors, and what takes several of them. Without a device in the options a new tensor
// is on DeviceScope::current(); without a dtype it has float32's elements, or those of what it is
// made from:
//   auto x = ddp::zeros({3, 4});
//   auto y = ddp::randn({3, 4}, 17, {.device = ddp::Device::parse("cuda:1")});
//   auto z = ddp::tensor({1, 2, 3}, {.dtype = ddp::DType::int64});
// All throw UsageError for what does not fit together, for a device that is not there and for
// shapes beyond all memory; SystemError with ENOMEM, which names bytes and device, when there is
// not enough.
#pragma once

#include <ddp/device.hpp>
#include <ddp/tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <span>

namespace ddp {

struct TensorOptions {
    std::optional<Device> device = {};
    std::optional<DType> dtype = {};
    bool pinned = false;  // on the CPU: memory that GPUs copy from and to without a detour
};

[[nodiscard]] DDP_API Tensor empty(const Shape&, const TensorOptions& = {});  // any values
[[nodiscard]] DDP_API Tensor zeros(const Shape&, const TensorOptions& = {});  // all 0
[[nodiscard]] DDP_API Tensor ones(const Shape&, const TensorOptions& = {});   // all 1
// Every element is `value`; float32 unless said, also for a whole number.
[[nodiscard]] DDP_API Tensor full(const Shape&, double value, const TensorOptions& = {});
// Normally distributed, mean 0 and variance 1, of a floating-point dtype. The same values for the
// same shape, dtype and seed, on every device and host: torch.randn's on the CPU after
// manual_seed(seed), but for the last digits of float32, where torch's kernels round their own way.
// The 16-bit types are float32's values rounded. As in torch, the low 32 bits of the seed count.
[[nodiscard]] DDP_API Tensor randn(const Shape&, std::uint64_t seed, const TensorOptions& = {});

// Of another tensor's shape; its device and dtype unless the options have others.
[[nodiscard]] DDP_API Tensor empty_like(const TensorView&, const TensorOptions& = {});
[[nodiscard]] DDP_API Tensor zeros_like(const TensorView&, const TensorOptions& = {});
[[nodiscard]] DDP_API Tensor ones_like(const TensorView&, const TensorOptions& = {});
// And its elements, in memory of their own.
[[nodiscard]] DDP_API Tensor clone(const TensorView&, const TensorOptions& = {});

// A copy of the values in another shape of as many elements.
template <std::ranges::contiguous_range R>
requires TensorElement<std::ranges::range_value_t<R>>
[[nodiscard]] Tensor tensor(const R& values, const Shape& shape, TensorOptions options = {}) {
    using T = std::ranges::range_value_t<R>;
    auto* const data = const_cast<T*>(std::ranges::data(values));  // a view that is only read
    TensorView view(data, Shape{static_cast<std::int64_t>(std::ranges::size(values))},
                    dtype_of<T>());
    if (!options.device) options.device = DeviceScope::current();
    return shape == view.shape ? clone(view, options) : clone(view, options).view(shape);
}
// In one dimension.
template <std::ranges::contiguous_range R>
requires TensorElement<std::ranges::range_value_t<R>>
[[nodiscard]] Tensor tensor(const R& values, const TensorOptions& options = {}) {
    return tensor(values, Shape{static_cast<std::int64_t>(std::ranges::size(values))}, options);
}
template <TensorElement T>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {}) {
    return tensor(std::span<const T>(values.begin(), values.size()), options);
}

// One after the other along a dimension, in which alone the shapes may differ; of one dtype, on one
// device, where the result is.
[[nodiscard]] DDP_API Tensor cat(std::span<const Tensor> tensors, int dim = 0);
[[nodiscard]] DDP_API Tensor cat(std::initializer_list<Tensor> tensors, int dim = 0);

// Overwrites the elements of `to` with those of `from`, whatever device and dtype they have; the
// same shape. Both may overlap only when they are the same memory.
DDP_API void copy_elements(const TensorView& from, const TensorView& to);

// The same shape, dtype and values, wherever they are. NaN equals nothing.
[[nodiscard]] DDP_API bool equal(const TensorView&, const TensorView&);
struct Tolerance {
    double relative = 1e-5;
    double absolute = 1e-8;
};
// The same shape, and |a - b| <= absolute + relative * |b| for each pair, as torch.allclose.
[[nodiscard]] DDP_API bool allclose(const TensorView& a, const TensorView& b,
                                    const Tolerance& = {});

}  // namespace ddp
