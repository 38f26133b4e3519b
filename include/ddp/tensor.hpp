// Tensor: memory with a shape, an element type and a device, owned; a value to be moved between
// devices, cut up and put together. No autograd: that is the trainer's or LibTorch's. Copies of the
// handle share the memory, which lives as long as one of them, and so do `view`, rows of `narrow`
// and `chunk`. Invariant: the elements are contiguous; what cannot be is copied.
//
// All calls return when their work is done, and first wait for what was put on the default streams
// of the GPUs that take part. Shapes, dtypes and devices that do not fit are UsageErrors.
#pragma once

#include <ddp/dtype.hpp>
#include <ddp/export.hpp>
#include <ddp/tensor_view.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp {

// `length` indices of a dimension, from `start` on. A negative start counts from the end.
struct Slice {
    std::int64_t start = 0;
    std::int64_t length = 0;
};

// Made by ddp/tensor_functions.hpp (zeros, randn, tensor, ...) and by ProcessGroup::allocate.
class Tensor {
public:
    Tensor() = default;  // no elements: shape [0]
    // Elements in `memory`, which lives as long as the last tensor of it.
    Tensor(const TensorView& view, std::shared_ptr<void> memory)
        : view_(view), memory_(std::move(memory)) {}

    // What it is made of: where its elements are, their shape, type and device.
    const TensorView& view() const noexcept { return view_; }
    operator TensorView() const noexcept { return view_; }  // NOLINT: a tensor is viewed at will
    void* data() const noexcept { return view_.data; }
    const Shape& shape() const noexcept { return view_.shape; }
    DType dtype() const noexcept { return view_.dtype; }
    const Device& device() const noexcept { return view_.device; }
    std::size_t numel() const noexcept { return view_.numel(); }
    std::size_t bytes() const noexcept { return view_.bytes(); }
    // The extent of a dimension; -1 is the last one.
    DDP_API std::int64_t size(int dim) const;
    // The elements themselves, when T is their type; of a GPU's memory only the addresses.
    template <TensorElement T>
    std::span<T> as() const {
        return view_.as<T>();
    }
    // The only element, wherever it is, as a T. Throws UsageError when there are more or none.
    template <TensorElement T>
    T item() const {
        T value{};
        read_item(TensorView(&value, Shape{}, dtype_of<T>()));
        return value;
    }

    // These elements there, as that dtype, in a new tensor: this one stays as and where it is, so
    // the result must not be dropped. Only where nothing changes it shares this one's memory, as in
    // PyTorch. Conversions are PyTorch's: floating point is truncated to integers (what does not
    // fit gives some value), bool is whether it is not zero, 16-bit types round to nearest.
    [[nodiscard]] DDP_API Tensor to(const Device& device) const;
    [[nodiscard]] DDP_API Tensor to(DType dtype) const;
    [[nodiscard]] DDP_API Tensor to(const Device& device, DType dtype) const;
    // A copy in memory of the host that GPUs read and write without a detour. Needs a GPU. Throws
    // UsageError for a tensor on a GPU; one on a virtual CPU device stays there.
    [[nodiscard]] DDP_API Tensor pin_memory() const;
    [[nodiscard]] DDP_API Tensor clone() const;  // the same in memory of its own

    // The same memory in another shape of as many elements; one extent may be -1: what is left.
    [[nodiscard]] DDP_API Tensor view(std::initializer_list<std::int64_t> extents) const;
    [[nodiscard]] DDP_API Tensor view(const Shape& shape) const;
    // A part of one dimension. Of dimension 0 it shares the memory; of others it is a copy, where
    // PyTorch has a view that is not contiguous.
    [[nodiscard]] DDP_API Tensor narrow(int dim, const Slice& slice) const;
    // One index of dimension 0, without that dimension: of [60, 5] a [5]. Shares the memory; a
    // negative index counts from the end.
    template <std::integral I>
    [[nodiscard]] Tensor operator[](I index) const {
        const auto counted = static_cast<std::int64_t>(index);
        const bool fits = std::is_signed_v<I> || counted >= 0;
        return row(fits ? counted : std::numeric_limits<std::int64_t>::max());
    }
    // PyTorch's rule: pieces of ceil(size / n), the last one may be smaller, and there may be fewer
    // than n: 10 rows in 8 are five pieces of 2. Memory as in `narrow`. No rows are n empty pieces.
    [[nodiscard]] DDP_API std::vector<Tensor> chunk(std::int64_t n, int dim = 0) const;

private:
    DDP_API void read_item(const TensorView& to) const;
    DDP_API Tensor row(std::int64_t index) const;

    TensorView view_;
    std::shared_ptr<void> memory_;
};

// Values as PyTorch prints them: `tensor([[0.5000, 2.0000]], device='cuda:0', dtype=float64)`, with
// device and dtype where they are not what the values suggest; of more than 1000 elements only the
// first and last three of each dimension.
DDP_API std::string to_string(const Tensor&);
DDP_API std::ostream& operator<<(std::ostream&, const Tensor&);

}  // namespace ddp
