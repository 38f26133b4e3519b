#include <ddp/shape.hpp>

#include <ddp/error.hpp>

#include <algorithm>
#include <ostream>

namespace ddp {

void Shape::refuse(std::span<const std::int64_t> extents) {
    if (extents.size() > max_dims) {
        throw UsageError("shape of " + std::to_string(extents.size()) + " dimensions; at most " +
                         std::to_string(max_dims) + " are supported");
    }
    const auto negative = std::ranges::find_if(extents, [](auto extent) { return extent < 0; });
    throw UsageError("shape with the negative extent " + std::to_string(*negative));
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
