// A module with one layer, y = x W^T + b, and a buffer that counts the rows that it has seen. It
// computes on the host, wherever its tensors are; a row's output depends on that row alone.
#pragma once

#include <ddp/module.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

class LinearModel {
public:
    LinearModel(std::int64_t inputs, std::int64_t outputs, const Device& device,
                std::uint64_t seed = 1)
        : weight(randn({outputs, inputs}, seed, {.device = device})),
          bias(randn({outputs}, seed + 1, {.device = device})),
          weight_grad(zeros_like(weight)),
          bias_grad(zeros_like(bias)),
          rows_seen(zeros({1}, {.device = device, .dtype = DType::int64})),
          parameters_{{"fc.weight", weight, weight_grad}, {"fc.bias", bias, bias_grad}} {}

    std::span<Parameter> parameters() { return parameters_; }
    std::vector<NamedTensor> buffers() { return {{"rows_seen", rows_seen}}; }
    LinearModel replicate(const Device& device) const {
        return {weight.shape()[1], weight.shape()[0], device, 99};
    }

    Tensor forward(const Tensor& x) {
        x_ = x.to(Device{});
        const Tensor y = zeros({x.shape()[0], bias.shape()[0]}, {.device = Device{}});
        const auto w = weight.to(Device{});
        const auto b = bias.to(Device{});
        const auto outputs = b.numel();
        for (std::size_t row = 0; row < rows(); ++row) {
            for (std::size_t o = 0; o < outputs; ++o) {
                float sum = b.as<float>()[o];
                for (std::size_t i = 0; i < inputs(); ++i) {
                    sum += x_.as<float>()[row * inputs() + i] * w.as<float>()[o * inputs() + i];
                }
                y.as<float>()[row * outputs + o] = sum;
            }
        }
        const std::vector<std::int64_t> seen{rows_seen.item<std::int64_t>() + x.shape()[0]};
        copy_elements(tensor(seen, {.device = Device{}}), rows_seen);
        return y.to(x.device());
    }

    Tensor backward(const Tensor& gradient) {
        const Tensor dy = gradient.to(Device{});
        const Tensor dw = weight_grad.to(Device{});
        const Tensor db = bias_grad.to(Device{});
        const Tensor w = weight.to(Device{});
        const Tensor dx = zeros(x_.shape(), {.device = Device{}});
        const auto outputs = db.numel();
        for (std::size_t row = 0; row < rows(); ++row) {
            for (std::size_t o = 0; o < outputs; ++o) {
                const float d = dy.as<float>()[row * outputs + o];
                db.as<float>()[o] += d;
                for (std::size_t i = 0; i < inputs(); ++i) {
                    dw.as<float>()[o * inputs() + i] += d * x_.as<float>()[row * inputs() + i];
                    dx.as<float>()[row * inputs() + i] += d * w.as<float>()[o * inputs() + i];
                }
            }
        }
        copy_elements(dw, weight_grad);
        copy_elements(db, bias_grad);
        return dx.to(gradient.device());
    }

    Tensor weight, bias, weight_grad, bias_grad, rows_seen;

private:
    std::size_t rows() const { return static_cast<std::size_t>(x_.shape()[0]); }
    std::size_t inputs() const { return static_cast<std::size_t>(x_.shape()[1]); }

    std::vector<Parameter> parameters_;
    Tensor x_;  // of the last forward
};

inline std::string to_string(const LinearModel& model) {
    return "Model((fc): Linear(in_features=" + std::to_string(model.weight.shape()[1]) +
           ", out_features=" + std::to_string(model.weight.shape()[0]) + ", bias=True))";
}

}  // namespace ddp::testing
