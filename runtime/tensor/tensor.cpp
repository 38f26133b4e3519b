// A tensor's moves, and its parts.
#include <ddp/tensor.hpp>

#include "tensor/blocks.hpp"

#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <array>

namespace ddp {

std::int64_t Tensor::size(int dim) const {
    return shape()[device::dimension(shape(), dim, "size")];
}

void Tensor::read_item(const TensorView& to) const {
    if (numel() != 1) {
        throw UsageError("item: a tensor of shape " + to_string(shape()) + " has " +
                         std::to_string(numel()) + " elements, not one");
    }
    copy_elements(TensorView(data(), to.shape, dtype(), device()), to);
}

Tensor Tensor::to(const Device& where) const { return to(where, dtype()); }

Tensor Tensor::to(DType dtype_) const { return to(device(), dtype_); }

Tensor Tensor::to(const Device& where, DType dtype_) const {
    if (where == device() && dtype_ == dtype()) return *this;
    return ddp::clone(view_, {.device = where, .dtype = dtype_});
}

Tensor Tensor::pin_memory() const {
    if (device().type != DeviceType::cpu) {
        throw UsageError("pin_memory: the tensor is on " + to_string(device()) +
                         ", and only memory of the host can be pinned; move it to the CPU first");
    }
    return ddp::clone(view_, {.device = device(), .pinned = true});
}

Tensor Tensor::clone() const { return ddp::clone(view_); }

namespace {

// The one extent that is -1, where there is one, from the number of elements.
Shape completed(std::span<const std::int64_t> extents, const Tensor& tensor) {
    std::array<std::int64_t, Shape::max_dims> known{};
    const std::size_t dims = extents.size();
    if (dims > known.size()) return Shape{extents};  // which says what is wrong
    std::ranges::copy(extents, known.begin());
    const auto open = std::find(known.begin(), known.begin() + dims, -1);
    if (open == known.begin() + dims) return Shape{extents};
    *open = 1;
    const Shape others{std::span<const std::int64_t>(known.data(), dims)};
    const std::size_t product = others.numel();
    if (product == 0 || tensor.numel() % product != 0) {
        throw UsageError("view: no extent in place of the -1 makes " + to_string(others) +
                         " (with a 1 there) out of the " + std::to_string(tensor.numel()) +
                         " elements of shape " + to_string(tensor.shape()));
    }
    *open = static_cast<std::int64_t>(tensor.numel() / product);
    return Shape{std::span<const std::int64_t>(known.data(), dims)};
}

// False also where the product has no place in a number.
bool holds(const Shape& shape, std::size_t elements) {
    std::size_t product = 1;
    bool fits = true;
    for (const std::int64_t extent : shape.extents()) {
        if (extent == 0) return elements == 0;
        fits = !__builtin_mul_overflow(product, static_cast<std::size_t>(extent), &product) && fits;
    }
    return fits && product == elements;
}

}  // namespace

Tensor Tensor::view(std::initializer_list<std::int64_t> extents) const {
    return view(completed({extents.begin(), extents.size()}, *this));
}

Tensor Tensor::view(const Shape& shape_) const {
    if (!holds(shape_, numel())) {
        throw UsageError("view: shape " + to_string(shape_) + " of a tensor of shape " +
                         to_string(shape()) + ", which has " + std::to_string(numel()) +
                         " elements");
    }
    return {TensorView(data(), shape_, dtype(), device()), memory_};
}

Tensor Tensor::narrow(int dim, const Slice& slice) const {
    const std::size_t at = device::dimension(shape(), dim, "narrow");
    const std::int64_t extent = shape()[at];
    const std::int64_t start = slice.start < 0 ? slice.start + extent : slice.start;
    if (start < 0 || start > extent || slice.length < 0 || slice.length > extent - start) {
        throw UsageError("narrow: " + std::to_string(slice.length) + " indices from " +
                         std::to_string(slice.start) + " on, of dimension " + std::to_string(dim) +
                         " of a tensor of shape " + to_string(shape()));
    }
    const Shape part = device::with_extent(shape(), at, slice.length);
    const std::size_t inner = device::inner_of(shape(), at);
    const std::size_t first = static_cast<std::size_t>(start) * inner;
    auto* const source = static_cast<std::byte*>(data());
    const std::size_t width = size_of(dtype());
    if (at == 0) {
        void* const rows = source == nullptr ? nullptr : source + first * width;
        return {TensorView(rows, part, dtype(), device()), memory_};
    }
    Tensor copy = empty(part, {.device = device(), .dtype = dtype()});
    if (copy.numel() == 0) return copy;
    const std::size_t length = static_cast<std::size_t>(slice.length) * inner;
    const std::size_t stride = static_cast<std::size_t>(extent) * inner;
    std::vector<device::PackItem> items(device::outer_of(shape(), at));
    for (std::size_t i = 0; i < items.size(); ++i) {
        items[i] = {source + (first + i * stride) * width, length, i * length};
    }
    device::copy_blocks(items, copy);
    return copy;
}

Tensor Tensor::row(std::int64_t index) const {
    const std::int64_t extent = shape()[device::dimension(shape(), 0, "operator[]")];
    const std::int64_t counted = index < 0 ? index + extent : index;
    if (counted < 0 || counted >= extent) {
        throw UsageError("operator[]: index " + std::to_string(index) + " of a tensor of shape " +
                         to_string(shape()));
    }
    const Shape rest{shape().extents().subspan(1)};
    const std::size_t row = rest.numel() * size_of(dtype());
    auto* const first = static_cast<std::byte*>(data());
    void* const at = first == nullptr ? nullptr : first + static_cast<std::size_t>(counted) * row;
    return {TensorView(at, rest, dtype(), device()), memory_};
}

std::vector<Tensor> Tensor::chunk(std::int64_t n, int dim) const {
    const std::int64_t extent = shape()[device::dimension(shape(), dim, "chunk")];
    if (n < 1) {
        throw UsageError("chunk: into " + std::to_string(n) + " pieces; one is the least");
    }
    std::vector<Tensor> pieces;
    if (extent == 0) {
        pieces.assign(static_cast<std::size_t>(n), *this);
        return pieces;
    }
    const std::int64_t most = extent / n + (extent % n != 0 ? 1 : 0);
    for (std::int64_t start = 0; start < extent; start += most) {
        pieces.push_back(narrow(dim, {start, std::min(most, extent - start)}));
    }
    return pieces;
}

}  // namespace ddp
