#include <ddp/collate.hpp>
#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace ddp::data {

namespace {

std::string described(const Tensor& tensor) {
    return to_string(tensor.shape()) + " " + std::string(to_string(tensor.dtype())) + " on " +
           to_string(tensor.device());
}

void require_like(const Tensor& first, const Tensor& other, std::size_t number) {
    if (other.shape() == first.shape() && other.dtype() == first.dtype() &&
        other.device() == first.device()) {
        return;
    }
    throw UsageError("data loader: sample " + std::to_string(number) + " of a batch is " +
                     described(other) + ", but the first is " + described(first) +
                     "; make them alike in the data set, or give the loader a collate callable");
}

Shape with_rows(const Shape& shape, std::size_t rows) {
    std::array<std::int64_t, Shape::max_dims> extents{static_cast<std::int64_t>(rows)};
    const std::size_t dims = std::min(shape.dims(), Shape::max_dims - 1);
    std::ranges::copy(shape.extents().first(dims), extents.begin() + 1);
    return Shape(std::span<const std::int64_t>(extents.data(), dims + 1));
}

}  // namespace

Tensor stack(std::span<const Tensor> samples) {
    if (samples.empty()) return {};
    const Tensor& first = samples.front();
    if (first.shape().dims() == Shape::max_dims) {
        throw UsageError("data loader: samples of shape " + to_string(first.shape()) +
                         " cannot be stacked: a tensor has at most 8 dimensions");
    }
    Tensor batch = empty(with_rows(first.shape(), samples.size()),
                         {.device = first.device(), .dtype = first.dtype()});
    auto* row = static_cast<std::byte*>(batch.data());
    for (std::size_t i = 0; i < samples.size(); ++i, row += first.bytes()) {
        require_like(first, samples[i], i);
        if (first.device().type == DeviceType::cpu) {
            if (first.bytes() > 0) std::memcpy(row, samples[i].data(), first.bytes());
        } else {
            copy_elements(samples[i], {row, first.shape(), first.dtype(), first.device()});
        }
    }
    return batch;
}

}  // namespace ddp::data
