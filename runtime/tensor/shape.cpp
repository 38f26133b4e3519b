#include <ddp/shape.hpp>

#include <ddp/error.hpp>

#include <ostream>

namespace ddp {

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

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

}  // namespace ddp
