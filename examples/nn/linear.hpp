// A fully connected layer: y = x W^T + b, and its gradients. Rows are samples. Invariant: it holds
// no address of a gradient, but asks its Parameter each time, because wrapping a net moves the
// gradients.
#pragma once

#include <ddp/parameter.hpp>

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace nn {

struct LinearSize {
    std::size_t inputs;
    std::size_t outputs;
};

class Linear {
public:
    // Weights and biases uniform in +-1/sqrt(inputs), as torch.nn.Linear's.
    Linear(LinearSize size, std::mt19937& random);

    // Weight [outputs, inputs] and bias [outputs], for the net's list. The list's own entries are
    // then given back by bind(): they, not copies, say where the gradients are.
    std::vector<ddp::Parameter> make_parameters(const std::string& name);
    void bind(std::span<ddp::Parameter> weight_and_bias) { parameters_ = weight_and_bias; }

    const LinearSize& size() const { return size_; }

    // x [rows, inputs] -> y [rows, outputs].
    void forward(std::span<const float> x, std::span<float> y);
    // Adds to the gradients of weight and bias; x as in forward, dy the gradient of y.
    void backward_parameters(std::span<const float> x, std::span<const float> dy) const;
    // dx [rows, inputs]: the gradient of x.
    void backward_input(std::span<const float> dy, std::span<float> dx) const;

private:
    LinearSize size_;
    std::vector<float> weight_, bias_, weight_grad_, bias_grad_;
    std::vector<float> transposed_;  // the weight as [inputs, outputs], made anew by each forward
    std::span<ddp::Parameter> parameters_;
};

}  // namespace nn
