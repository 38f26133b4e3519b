// A fully connected layer, y = x W^T + b, whose tensors are on any device. ddp brings no kernels
// for layers: this one computes on the host and copies from and to a GPU, where a layer of yours
// would launch a kernel or call cuBLAS. A row's output has the same bits in any batch and on any
// device.
#pragma once

#include <ddp/parameter.hpp>
#include <ddp/tensor.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/linear.hpp"

namespace nn {

class DeviceLinear {
public:
    // On DeviceScope::current(), with uniform weights as torch.nn.Linear's.
    explicit DeviceLinear(LinearSize size);

    const LinearSize& size() const { return size_; }
    std::vector<ddp::Parameter> make_parameters(const std::string& name) const;

    // x [rows, inputs] -> y [rows, outputs], on the device of x.
    ddp::Tensor forward(const ddp::Tensor& x);
    // Of the last forward. Adds to the gradients of weight and bias.
    void backward(const ddp::Tensor& dy);

private:
    LinearSize size_;
    ddp::Tensor weight_, bias_, weight_grad_, bias_grad_;
    ddp::Tensor x_;  // of the last forward
};

// "Linear(in_features=5, out_features=2, bias=True)"
std::string to_string(const DeviceLinear& layer);

}  // namespace nn
