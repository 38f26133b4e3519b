// A net without arithmetic: its backward adds to each gradient a number that depends on rank and
// step, so that averages are known exactly. For tests of the reducer and its wrapper.
#pragma once

#include <ddp/parameter.hpp>

#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

class ToyNet {
public:
    explicit ToyNet(const std::vector<std::int64_t>& sizes, float initial_value = 0) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const auto size = static_cast<std::size_t>(sizes[i]);
            values_.emplace_back(size, initial_value + static_cast<float>(i));
            grads_.emplace_back(size, 0.0F);
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            parameters_.push_back({"layer" + std::to_string(i), values_[i], grads_[i]});
        }
    }
    ToyNet(const ToyNet&) = delete;
    ToyNet& operator=(const ToyNet&) = delete;

    std::span<Parameter> parameters() { return parameters_; }
    void on_gradient_ready(GradientReady hook) { hook_ = std::move(hook); }

    float forward(float input) const { return 2 * input; }
    // Adds `amount` + the parameter's index to each gradient, last parameter first.
    void backward(float amount) {
        for (std::size_t left = parameters_.size(); left > 0; --left) {
            const std::size_t index = left - 1;
            for (float& grad : parameters_[index].grad.as<float>()) {
                grad += amount + static_cast<float>(index);
            }
            if (hook_) hook_(index, Stream{});
        }
    }
    void zero_grad() {
        for (Parameter& parameter : parameters_) {
            for (float& grad : parameter.grad.as<float>()) grad = 0;
        }
    }
    // Whether every element of every gradient is `amount` + the parameter's index.
    bool gradients_are(float amount) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            for (const float grad : parameters_[i].grad.as<float>()) {
                if (grad != amount + static_cast<float>(i)) return false;
            }
        }
        return true;
    }
    const std::vector<float>& own_gradient(std::size_t index) const { return grads_[index]; }

private:
    std::vector<std::vector<float>> values_;
    std::vector<std::vector<float>> grads_;
    std::vector<Parameter> parameters_;
    GradientReady hook_;
};

}  // namespace ddp::testing
