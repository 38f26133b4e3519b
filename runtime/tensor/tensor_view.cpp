// What Shape and TensorView do not do inline: errors and text.
#include <ddp/tensor_view.hpp>

#include <ddp/error.hpp>

#include <ostream>

namespace ddp {

void Shape::throw_too_many(std::size_t dims) {
    throw UsageError("shape of " + std::to_string(dims) + " dimensions; at most " +
                     std::to_string(max_dims) + " are supported");
}

void Shape::throw_negative(std::int64_t extent) {
    throw UsageError("shape with the negative extent " + std::to_string(extent));
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

void TensorView::require_dtype(DType wanted) const {
    if (dtype != wanted) {
        throw UsageError(std::string("tensor holds ") + to_string(dtype) + ", not " +
                         to_string(wanted));
    }
}

}  // namespace ddp
