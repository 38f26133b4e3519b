// TensorView: borrowed, contiguous memory with a shape, an element type and a device; what the
// collectives and the reducer work on. It owns nothing: the memory must outlive every Work on it.
#pragma once

#include <ddp/device.hpp>
#include <ddp/dtype.hpp>
#include <ddp/export.hpp>
#include <ddp/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

namespace ddp {

struct TensorView {
    void* data = nullptr;
    Shape shape{0};
    DType dtype = DType::float32;
    Device device{};

    TensorView() = default;
    // Contiguous elements, from `data_` on.
    TensorView(void* data_, Shape shape_, DType dtype_, Device device_ = {})
        : data(data_), shape(shape_), dtype(dtype_), device(device_) {}

    // From anything contiguous and mutable whose elements have a DType: a span, a vector, an array.
    template <std::ranges::contiguous_range R>
    requires TensorElement<std::ranges::range_value_t<R>> &&
        (!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)&&(
            std::is_lvalue_reference_v<R> ||
            std::ranges::borrowed_range<R>)TensorView(R&& range)  // NOLINT: implicit by design
        : data(std::ranges::data(range)),
          shape{static_cast<std::int64_t>(std::ranges::size(range))},
          dtype(dtype_of<std::ranges::range_value_t<R>>()) {}

    std::size_t numel() const noexcept { return shape.numel(); }             // elements
    std::size_t bytes() const noexcept { return numel() * size_of(dtype); }  // of them all

    // The elements, when T is their type; throws UsageError otherwise.
    template <TensorElement T>
    std::span<T> as() const {
        require_dtype(dtype_of<T>());
        return {static_cast<T*>(data), numel()};
    }

private:
    DDP_API void require_dtype(DType) const;
};

// A tensor and what it is called: a parameter's value, an optimiser's momentum.
struct NamedTensor {
    std::string name;
    TensorView tensor;
};

}  // namespace ddp
