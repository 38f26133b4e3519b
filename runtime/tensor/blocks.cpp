#include "tensor/blocks.hpp"

#include "tensor/device/current_gpu.hpp"

#include <ddp/error.hpp>

#include <array>
#include <cstring>

namespace ddp::device {

std::size_t dimension(const Shape& shape, int dim, const char* call) {
    const int dims = static_cast<int>(shape.dims());
    const int counted = dim < 0 ? dim + dims : dim;
    if (counted >= 0 && counted < dims) return static_cast<std::size_t>(counted);
    throw UsageError(std::string(call) + ": dimension " + std::to_string(dim) +
                     " of a tensor of shape " + to_string(shape) + ", which has " +
                     std::to_string(dims) + (dims == 1 ? " dimension" : " dimensions"));
}

Shape with_extent(const Shape& shape, std::size_t dim, std::int64_t extent) {
    std::array<std::int64_t, Shape::max_dims> extents{};
    std::ranges::copy(shape.extents(), extents.begin());
    extents[dim] = extent;
    return Shape{std::span<const std::int64_t>(extents.data(), shape.dims())};
}

std::size_t inner_of(const Shape& shape, std::size_t dim) {
    return Shape{shape.extents().subspan(dim + 1)}.numel();
}

std::size_t outer_of(const Shape& shape, std::size_t dim) {
    return Shape{shape.extents().first(dim)}.numel();
}

void copy_blocks(std::span<const PackItem> items, const TensorView& packed) {
    if (packed.numel() == 0) return;
    if (packed.device.type == DeviceType::cuda) {
        DeviceApi& api = device_api();
        const CurrentGpu current(api, packed.device.index);
        api.pack(items, packed, 1.0, Stream{});
        api.synchronize(Stream{});
        return;
    }
    const std::size_t width = size_of(packed.dtype);
    auto* const to = static_cast<std::byte*>(packed.data);
    for (const PackItem& item : items) {
        if (item.elements == 0) continue;
        std::memcpy(to + item.offset * width, item.data, item.elements * width);
    }
}

}  // namespace ddp::device
