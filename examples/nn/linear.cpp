// Plain loops, ordered so that the innermost runs over contiguous memory and needs no sum of its
// own: the compiler vectorises those without changing the order of additions, so a sample's result
// does not depend on which other samples are in its batch.
#include "nn/linear.hpp"

#include <algorithm>
#include <cmath>

namespace nn {

namespace {

constexpr std::size_t weight = 0;
constexpr std::size_t bias = 1;

// y += a * x
void add_scaled(float a, std::span<const float> x, float* y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] += a * x[i];
}

std::vector<float> uniform(std::size_t count, float bound, std::mt19937& random) {
    std::vector<float> values(count);
    for (float& value : values) {
        // 24 random bits fill a float exactly; std::uniform_real_distribution differs between
        // libraries.
        const float zero_to_one = static_cast<float>(random() >> 8) / 16777216.0F;
        value = (2 * zero_to_one - 1) * bound;
    }
    return values;
}

}  // namespace

Linear::Linear(LinearSize size, std::mt19937& random)
    : size_(size),
      weight_grad_(size.inputs * size.outputs),
      bias_grad_(size.outputs),
      transposed_(size.inputs * size.outputs) {
    const float bound = 1 / std::sqrt(static_cast<float>(size.inputs));
    weight_ = uniform(size.inputs * size.outputs, bound, random);
    bias_ = uniform(size.outputs, bound, random);
}

std::vector<ddp::Parameter> Linear::make_parameters(const std::string& name) {
    const auto inputs = static_cast<std::int64_t>(size_.inputs);
    const auto outputs = static_cast<std::int64_t>(size_.outputs);
    const auto view = [&](std::vector<float>& values) {
        return ddp::TensorView{values.data(), {outputs, inputs}, ddp::DType::float32};
    };
    return {{name + ".weight", view(weight_), view(weight_grad_)},
            {name + ".bias", bias_, bias_grad_}};
}

void Linear::forward(std::span<const float> x, std::span<float> y) {
    const auto [inputs, outputs] = size_;
    for (std::size_t o = 0; o < outputs; ++o) {
        for (std::size_t i = 0; i < inputs; ++i)
            transposed_[i * outputs + o] = weight_[o * inputs + i];
    }
    const std::span<const float> columns = transposed_;
    for (std::size_t row = 0; row < x.size() / inputs; ++row) {
        float* out = &y[row * outputs];
        std::ranges::copy(bias_, out);
        for (std::size_t i = 0; i < inputs; ++i) {
            add_scaled(x[row * inputs + i], columns.subspan(i * outputs, outputs), out);
        }
    }
}

void Linear::backward_parameters(std::span<const float> x, std::span<const float> dy) const {
    const auto [inputs, outputs] = size_;
    auto* weight_grad = static_cast<float*>(parameters_[weight].grad.data);
    auto* bias_grad = static_cast<float*>(parameters_[bias].grad.data);
    for (std::size_t row = 0; row < x.size() / inputs; ++row) {
        const auto gradients = dy.subspan(row * outputs, outputs);
        add_scaled(1, gradients, bias_grad);
        for (std::size_t o = 0; o < outputs; ++o) {
            add_scaled(gradients[o], x.subspan(row * inputs, inputs), weight_grad + o * inputs);
        }
    }
}

void Linear::backward_input(std::span<const float> dy, std::span<float> dx) const {
    const auto [inputs, outputs] = size_;
    std::ranges::fill(dx, 0.0F);
    const std::span<const float> rows_of_weight = weight_;
    for (std::size_t row = 0; row < dx.size() / inputs; ++row) {
        for (std::size_t o = 0; o < outputs; ++o) {
            add_scaled(dy[row * outputs + o], rows_of_weight.subspan(o * inputs, inputs),
                       &dx[row * inputs]);
        }
    }
}

}  // namespace nn
