// Factories, and functions of several tensors.
#include <ddp/tensor_functions.hpp>

#include "tensor/allocation.hpp"
#include "tensor/blocks.hpp"
#include "tensor/normal_numbers.hpp"
#include "tensor/with_type.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cmath>

namespace ddp {
namespace {

constexpr Device cpu{};

Tensor allocate_as(const Shape& shape, const TensorOptions& options) {
    return device::allocate(
        shape, options.dtype.value_or(DType::float32),
        options.device.value_or(DeviceScope::current()),
        options.pinned ? device::HostMemory::pinned : device::HostMemory::ordinary);
}

TensorOptions like(const TensorView& model, TensorOptions options) {
    if (!options.device) options.device = model.device;
    if (!options.dtype) options.dtype = model.dtype;
    return options;
}

// The tensor of the options, made by `fill` on the CPU.
template <class Fill>
Tensor filled_on_cpu(const Shape& shape, const TensorOptions& options, const Fill& fill) {
    Tensor made = allocate_as(shape, options);
    if (made.device().type == DeviceType::cpu) {
        fill(made.view());
        return made;
    }
    const Tensor staged = device::allocate(shape, made.dtype(), cpu);
    fill(staged.view());
    copy_elements(staged, made);
    return made;
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& options) {
    return allocate_as(shape, options);
}

Tensor zeros(const Shape& shape, const TensorOptions& options) {
    Tensor made = allocate_as(shape, options);
    device::set_zero(made);
    return made;
}

Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor full(const Shape& shape, double value, const TensorOptions& options) {
    return filled_on_cpu(shape, options, [&](const TensorView& tensor) {
        device::with_type(tensor.dtype, [&](auto converted) {
            copy_elements(TensorView(&value, Shape{}, DType::float64),
                          TensorView(&converted, Shape{}, tensor.dtype));
            std::ranges::fill(tensor.as<decltype(converted)>(), converted);
        });
    });
}

Tensor randn(const Shape& shape, std::uint64_t seed, const TensorOptions& options) {
    const DType dtype = options.dtype.value_or(DType::float32);
    if (!is_floating_point(dtype)) {
        throw UsageError(std::string("randn: normal numbers of dtype ") + to_string(dtype) +
                         "; a floating-point dtype is needed");
    }
    return filled_on_cpu(shape, options, [&](const TensorView& tensor) {
        if (dtype == DType::float64) {
            device::fill_normal(tensor.as<double>(), seed);
        } else if (dtype == DType::float32) {
            device::fill_normal(tensor.as<float>(), seed);
        } else {
            const Tensor wide = device::allocate(shape, DType::float32, cpu);
            device::fill_normal(wide.as<float>(), seed);
            copy_elements(wide, tensor);
        }
    });
}

Tensor empty_like(const TensorView& model, const TensorOptions& options) {
    return empty(model.shape, like(model, options));
}

Tensor zeros_like(const TensorView& model, const TensorOptions& options) {
    return zeros(model.shape, like(model, options));
}

Tensor ones_like(const TensorView& model, const TensorOptions& options) {
    return ones(model.shape, like(model, options));
}

Tensor clone(const TensorView& source, const TensorOptions& options) {
    Tensor copy = empty_like(source, options);
    copy_elements(source, copy);
    return copy;
}

namespace {

// Throws where a tensor cannot stand beside the first one.
void require_fit(const Tensor& first, const Tensor& other, std::size_t at, std::size_t dim) {
    const std::string who = "cat: tensor " + std::to_string(at);
    if (other.device() != first.device()) {
        throw UsageError(who + " is on " + to_string(other.device()) + ", the first one on " +
                         to_string(first.device()) + "; .to(device) brings them together");
    }
    if (other.dtype() != first.dtype()) {
        throw UsageError(who + " holds " + to_string(other.dtype()) + ", the first one " +
                         to_string(first.dtype()) + "; .to(dtype) makes them alike");
    }
    const bool fits = other.shape().dims() == first.shape().dims() &&
                      device::with_extent(other.shape(), dim, first.shape()[dim]) == first.shape();
    if (fits) return;
    throw UsageError(who + " has shape " + to_string(other.shape()) + ", the first one " +
                     to_string(first.shape()) + "; only dimension " + std::to_string(dim) +
                     " may differ");
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int dim) {
    if (tensors.empty()) throw UsageError("cat: no tensors; it takes one or more");
    const Tensor& first = tensors[0];
    const std::size_t at = device::dimension(first.shape(), dim, "cat");
    std::int64_t total = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        require_fit(first, tensors[i], i, at);
        total += tensors[i].shape()[at];
    }
    Tensor joined = empty(device::with_extent(first.shape(), at, total),
                          {.device = first.device(), .dtype = first.dtype()});
    const std::size_t inner = device::inner_of(first.shape(), at);
    const std::size_t outer = device::outer_of(first.shape(), at);
    const std::size_t width = size_of(first.dtype());
    std::vector<device::PackItem> items;
    items.reserve(outer * tensors.size());
    std::size_t before = 0;
    for (const Tensor& tensor : tensors) {
        const std::size_t length = static_cast<std::size_t>(tensor.shape()[at]) * inner;
        for (std::size_t i = 0; i < outer && length > 0; ++i) {
            items.push_back({static_cast<std::byte*>(tensor.data()) + i * length * width, length,
                             before + i * static_cast<std::size_t>(total) * inner});
        }
        before += length;
    }
    device::copy_blocks(items, joined);
    return joined;
}

Tensor cat(std::initializer_list<Tensor> tensors, int dim) {
    return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}

bool equal(const TensorView& a, const TensorView& b) {
    if (a.shape != b.shape || a.dtype != b.dtype) return false;
    const Tensor left = clone(a, {.device = cpu});
    const Tensor right = clone(b, {.device = cpu});
    bool same = false;
    device::with_type(a.dtype, [&](auto value) {
        using T = decltype(value);
        same = std::ranges::equal(left.as<T>(), right.as<T>());
    });
    return same;
}

bool allclose(const TensorView& a, const TensorView& b, const Tolerance& tolerance) {
    if (a.shape != b.shape) return false;
    const Tensor left = clone(a, {.device = cpu, .dtype = DType::float64});
    const Tensor right = clone(b, {.device = cpu, .dtype = DType::float64});
    return std::ranges::equal(left.as<double>(), right.as<double>(), [&](double x, double y) {
        return x == y || (std::isfinite(y) &&
                          std::abs(x - y) <= tolerance.absolute + tolerance.relative * std::abs(y));
    });
}

}  // namespace ddp
