// The innermost loops run over contiguous memory, one row of the batch after the other, so that
// neither the batch nor the device changes the order of a row's additions.
#include "nn/device_linear.hpp"

#include <ddp/tensor_functions.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <span>

namespace nn {

namespace {

constexpr std::uint32_t initial_seed = 1;

// Memory that this thread can read and write: the tensor's own but for a GPU's.
ddp::Tensor on_host(const ddp::Tensor& tensor) {
    return tensor.device().type == ddp::DeviceType::cpu ? tensor : tensor.to(ddp::Device{});
}
// What was done to the copy becomes the tensor's.
void put_back(const ddp::Tensor& host, const ddp::Tensor& tensor) {
    if (host.data() != tensor.data()) ddp::copy_elements(host, tensor);
}

void add_scaled(float a, std::span<const float> x, std::span<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
}

std::span<float> row_of(const ddp::Tensor& tensor, std::size_t row) {
    const auto columns = static_cast<std::size_t>(tensor.shape()[1]);
    return tensor.as<float>().subspan(row * columns, columns);
}

}  // namespace

DeviceLinear::DeviceLinear(LinearSize size) : size_(size) {
    std::mt19937 random{initial_seed};
    Linear initial{size, random};
    const auto values = initial.make_parameters("");
    const ddp::TensorOptions here{.device = ddp::DeviceScope::current()};
    weight_ = ddp::clone(values[0].value, here);
    bias_ = ddp::clone(values[1].value, here);
    weight_grad_ = ddp::zeros_like(weight_);
    bias_grad_ = ddp::zeros_like(bias_);
}

std::vector<ddp::Parameter> DeviceLinear::make_parameters(const std::string& name) const {
    return {{name + ".weight", weight_, weight_grad_}, {name + ".bias", bias_, bias_grad_}};
}

ddp::Tensor DeviceLinear::forward(const ddp::Tensor& x) {
    x_ = on_host(x);
    const ddp::Tensor weight = on_host(weight_);
    const ddp::Tensor bias = on_host(bias_);
    const std::int64_t rows = x.shape()[0];
    const ddp::Tensor y = ddp::empty({rows, bias.shape()[0]}, {.device = x_.device()});
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
        const auto in = row_of(x_, row);
        const auto out = row_of(y, row);
        for (std::size_t o = 0; o < size_.outputs; ++o) {
            const auto weights = row_of(weight, o);
            out[o] = std::inner_product(in.begin(), in.end(), weights.begin(), bias.as<float>()[o]);
        }
    }
    return y.to(x.device());
}

void DeviceLinear::backward(const ddp::Tensor& dy) {
    const ddp::Tensor gradient = on_host(dy);
    const ddp::Tensor weight_grad = on_host(weight_grad_);
    const ddp::Tensor bias_grad = on_host(bias_grad_);
    for (std::size_t row = 0; row < static_cast<std::size_t>(dy.shape()[0]); ++row) {
        const auto gradients = row_of(gradient, row);
        add_scaled(1, gradients, bias_grad.as<float>());
        for (std::size_t o = 0; o < size_.outputs; ++o) {
            add_scaled(gradients[o], row_of(x_, row), row_of(weight_grad, o));
        }
    }
    put_back(weight_grad, weight_grad_);
    put_back(bias_grad, bias_grad_);
}

std::string to_string(const DeviceLinear& layer) {
    return "Linear(in_features=" + std::to_string(layer.size().inputs) +
           ", out_features=" + std::to_string(layer.size().outputs) + ", bias=True)";
}

}  // namespace nn
