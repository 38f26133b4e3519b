// What the C++ blocks of docs/from_pytorch.md take for granted: a reader's own model, optimiser,
// rows and loss. Each block is the body of a function.
#pragma once

#include <ddp/ddp.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/device_linear.hpp"

// One layer on DeviceScope::current(), fit for DataParallel and DistributedDataParallel.
class Model {
public:
    Model(std::size_t inputs, std::size_t outputs)
        : fc({inputs, outputs}), parameters_(fc.make_parameters("fc")) {}

    std::span<ddp::Parameter> parameters() { return parameters_; }
    void on_gradient_ready(ddp::GradientReady hook) { hook_ = std::move(hook); }
    Model replicate(const ddp::Device& device) const {
        const ddp::DeviceScope scope{device};
        return Model{fc.size().inputs, fc.size().outputs};
    }
    ddp::Tensor forward(const ddp::Tensor& input) { return fc.forward(input); }
    void backward(const ddp::Tensor& gradient) {
        fc.backward(gradient);
        for (std::size_t i = 0; hook_ && i < parameters_.size(); ++i) hook_(i, {});
    }

    nn::DeviceLinear fc;

private:
    std::vector<ddp::Parameter> parameters_;
    ddp::GradientReady hook_;
};

inline std::string to_string(const Model& model) {
    return "Model((fc): " + to_string(model.fc) + ")";
}

// Gradient descent, for parameters on any device.
class Sgd {
public:
    Sgd(std::span<ddp::Parameter> parameters, float rate) : parameters_(parameters), rate_(rate) {}

    void zero_grad() {
        for (const auto& p : parameters_) ddp::copy_elements(ddp::zeros_like(p.grad), p.grad);
    }
    void step() {
        for (const auto& p : parameters_) {
            const auto value = ddp::clone(p.value, {.device = ddp::Device{}});
            const auto gradient = ddp::clone(p.grad, {.device = ddp::Device{}});
            for (std::size_t i = 0; i < value.numel(); ++i) {
                value.as<float>()[i] -= rate_ * gradient.as<float>()[i];
            }
            ddp::copy_elements(value, p.value);
        }
    }
    std::vector<ddp::NamedTensor> state_dict() { return {}; }

private:
    std::span<ddp::Parameter> parameters_;
    float rate_;
};

// So many samples of 5 numbers.
inline std::vector<ddp::Tensor> rows(std::size_t count) {
    std::vector<ddp::Tensor> samples;
    for (std::size_t i = 0; i < count; ++i) {
        samples.push_back(ddp::randn({5}, i, {.device = ddp::Device{}}));
    }
    return samples;
}

// Of half the sum of the outputs' squares.
inline ddp::Tensor loss_gradient(const ddp::Tensor& output) { return output.clone(); }

// Half the squared distance from the targets, and its gradient; as a share of all rows' mean.
inline ddp::LossShare share_of_loss(const ddp::Tensor& output, const ddp::Tensor& target,
                                    std::size_t rows_of_all) {
    const auto gradient = output.to(ddp::Device{}).clone();
    const auto wanted = target.to(ddp::Device{});
    double loss = 0;
    for (std::size_t i = 0; i < gradient.numel(); ++i) {
        const float difference = gradient.as<float>()[i] - wanted.as<float>()[i];
        loss += 0.5 * difference * difference / static_cast<double>(rows_of_all);
        gradient.as<float>()[i] = difference / static_cast<float>(rows_of_all);
    }
    return {loss, gradient.to(output.device())};
}
