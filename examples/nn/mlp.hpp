// Mlp: a classifier of fully connected layers with rectifiers between them and a softmax
// cross-entropy at the end; the gradients are written by hand. It models ddp::Trainable.
#pragma once

#include <ddp/parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "nn/linear.hpp"

namespace nn {

class Mlp {
public:
    // Mlp{64, 128, 10}: 64 inputs, one hidden layer of 128, 10 classes. The same initial weights in
    // every process.
    Mlp(std::initializer_list<std::size_t> widths);
    Mlp(const Mlp&) = delete;  // the layers hold on to parameters()
    Mlp& operator=(const Mlp&) = delete;

    std::span<ddp::Parameter> parameters() { return parameters_; }
    std::span<const ddp::Parameter> parameters() const { return parameters_; }
    void on_gradient_ready(ddp::GradientReady hook) { gradient_ready_ = std::move(hook); }

    // images [rows, inputs] -> the mean loss. `images` must stay until backward().
    double forward(std::span<const float> images, std::span<const std::int32_t> labels);
    // Adds the gradients of the last forward to those of the parameters, last layer first.
    void backward();
    // The most likely class of each row.
    std::vector<std::int32_t> predict(std::span<const float> images);

private:
    std::span<const float> run_layers(std::span<const float> images);

    std::vector<Linear> layers_;
    std::vector<ddp::Parameter> parameters_;  // layer l: weight at 2 l, bias at 2 l + 1
    ddp::GradientReady gradient_ready_;

    std::span<const float> images_;
    std::vector<std::vector<float>> outputs_;    // of each layer, after the rectifier
    std::vector<std::vector<float>> gradients_;  // of the same
};

// 64-bit FNV-1a of the weights' bytes: equal digests mean equal bits.
std::uint64_t digest(const Mlp& net);
std::uint64_t digest(std::span<const ddp::Parameter> parameters);

}  // namespace nn
