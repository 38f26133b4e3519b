// TensorView: borrowed, contiguous memory with a shape, an element type and a device; what the
// collectives and the reducer work on. It owns nothing: the memory must outlive every Work on it.
#pragma once

#include <ddp/dtype.hpp>
#include <ddp/export.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace ddp {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
    DeviceType type = DeviceType::cpu;
    int index = 0;  // of the GPU; 0 for the CPU
    friend bool operator==(const Device&, const Device&) = default;
};

DDP_API std::string to_string(const Device&);  // "cpu", "cuda:1"

// Up to eight extents, outermost first. No dimension at all is a scalar: one element.
class Shape {
public:
    static constexpr std::size_t max_dims = 8;

    constexpr Shape() = default;
    // Throws UsageError for more than max_dims dimensions or a negative extent.
    DDP_API Shape(std::initializer_list<std::int64_t> extents);
    DDP_API explicit Shape(std::span<const std::int64_t> extents);

    std::span<const std::int64_t> extents() const noexcept { return {extents_.data(), dims_}; }
    std::size_t dims() const noexcept { return dims_; }
    std::int64_t operator[](std::size_t dim) const { return extents_[dim]; }
    DDP_API std::size_t numel() const noexcept;  // elements: the product of the extents
    friend bool operator==(const Shape&, const Shape&) = default;

private:
    std::array<std::int64_t, max_dims> extents_{};
    std::size_t dims_ = 0;
};

DDP_API std::string to_string(const Shape&);  // "[10, 128]"

struct TensorView {
    void* data = nullptr;
    Shape shape{0};
    DType dtype = DType::float32;
    Device device{};

    TensorView() = default;
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

    std::size_t numel() const noexcept { return shape.numel(); }
    std::size_t bytes() const noexcept { return numel() * size_of(dtype); }

    // The elements, when T is their type; throws UsageError otherwise.
    template <TensorElement T>
    std::span<T> as() const {
        require_dtype(dtype_of<T>());
        return {static_cast<T*>(data), numel()};
    }

private:
    DDP_API void require_dtype(DType) const;
};

// Owns its memory, shared between copies of the handle. Made by ProcessGroup::allocate.
class Tensor {
public:
    Tensor() = default;
    Tensor(const TensorView& view, std::shared_ptr<void> memory)
        : view_(view), memory_(std::move(memory)) {}

    const TensorView& view() const noexcept { return view_; }
    operator TensorView() const noexcept { return view_; }  // NOLINT: a tensor is viewed at will
    void* data() const noexcept { return view_.data; }
    const Shape& shape() const noexcept { return view_.shape; }
    DType dtype() const noexcept { return view_.dtype; }
    std::size_t numel() const noexcept { return view_.numel(); }
    std::size_t bytes() const noexcept { return view_.bytes(); }
    template <TensorElement T>
    std::span<T> as() const {
        return view_.as<T>();
    }

private:
    TensorView view_;
    std::shared_ptr<void> memory_;
};

// A tensor and what it is called: a parameter's value, an optimiser's momentum.
struct NamedTensor {
    std::string name;
    TensorView tensor;
};

}  // namespace ddp
