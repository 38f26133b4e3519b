#include <ddp/tensor.hpp>

#include <ddp/error.hpp>

namespace ddp {

std::size_t size_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::float64:
        case DType::int64:
            return 8;
        case DType::float32:
        case DType::int32:
            return 4;
        case DType::float16:
        case DType::bfloat16:
        case DType::int16:
            return 2;
        case DType::uint8:
        case DType::int8:
        case DType::boolean:
            return 1;
    }
    return 0;
}

const char* to_string(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return "float32";
        case DType::float64:
            return "float64";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
        case DType::uint8:
            return "uint8";
        case DType::float16:
            return "float16";
        case DType::bfloat16:
            return "bfloat16";
        case DType::int8:
            return "int8";
        case DType::int16:
            return "int16";
        case DType::boolean:
            return "bool";
    }
    return "unknown";
}

bool is_floating_point(DType dtype) noexcept {
    return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 ||
           dtype == DType::bfloat16;
}

std::string to_string(const Device& device) {
    switch (device.type) {
        case DeviceType::cpu:
            return "cpu";
        case DeviceType::cuda:
            return "cuda:" + std::to_string(device.index);
    }
    return "unknown";
}

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) : dims_(extents.size()) {
    if (extents.size() > max_dims) {
        throw UsageError("shape of " + std::to_string(extents.size()) + " dimensions; at most " +
                         std::to_string(max_dims) + " are supported");
    }
    for (std::size_t dim = 0; dim < dims_; ++dim) {
        if (extents[dim] < 0) {
            throw UsageError("shape with the negative extent " + std::to_string(extents[dim]));
        }
        extents_[dim] = extents[dim];
    }
}

std::size_t Shape::numel() const noexcept {
    std::size_t product = 1;
    for (const std::int64_t extent : extents()) product *= static_cast<std::size_t>(extent);
    return product;
}

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape.extents()) {
        if (text.size() > 1) text += ", ";
        text += std::to_string(extent);
    }
    return text + "]";
}

void TensorView::require_dtype(DType wanted) const {
    if (dtype != wanted) {
        throw UsageError(std::string("tensor holds ") + to_string(dtype) + ", not " +
                         to_string(wanted));
    }
}

}  // namespace ddp
