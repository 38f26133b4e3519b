// Backward tells the hook about a parameter right after its gradient, before it goes on to the
// layer below: that is what lets the all-reduce run while backward does.
#include "nn/mlp.hpp"

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "nn/relu.hpp"
#include "nn/softmax_cross_entropy.hpp"

namespace nn {

namespace {
constexpr std::uint32_t initial_seed = 1;
}

Mlp::Mlp(std::initializer_list<std::size_t> widths) {
    std::mt19937 random{initial_seed};
    for (const auto* inputs = widths.begin(); inputs + 1 < widths.end(); ++inputs) {
        layers_.emplace_back(LinearSize{inputs[0], inputs[1]}, random);
    }
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        std::ranges::move(layers_[l].make_parameters("layers." + std::to_string(l)),
                          std::back_inserter(parameters_));
    }
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        layers_[l].bind(std::span(parameters_).subspan(2 * l, 2));
    }
    outputs_.resize(layers_.size());
    gradients_.resize(layers_.size());
}

std::span<const float> Mlp::run_layers(std::span<const float> images) {
    const std::size_t rows = images.size() / layers_.front().size().inputs;
    std::span<const float> x = images;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        outputs_[l].resize(rows * layers_[l].size().outputs);
        layers_[l].forward(x, outputs_[l]);
        if (l + 1 < layers_.size()) relu(outputs_[l]);
        x = outputs_[l];
    }
    return x;
}

double Mlp::forward(std::span<const float> images, std::span<const std::int32_t> labels) {
    images_ = images;
    const auto logits = run_layers(images);
    gradients_.back().resize(logits.size());
    return softmax_cross_entropy(logits, labels, gradients_.back());
}

void Mlp::backward() {
    for (std::size_t l = layers_.size(); l-- > 0;) {
        const std::span<const float> x = l == 0 ? images_ : outputs_[l - 1];
        layers_[l].backward_parameters(x, gradients_[l]);
        if (gradient_ready_) {
            gradient_ready_(2 * l + 1, {});
            gradient_ready_(2 * l, {});
        }
        if (l == 0) break;
        gradients_[l - 1].resize(x.size());
        layers_[l].backward_input(gradients_[l], gradients_[l - 1]);
        relu_backward(x, gradients_[l - 1]);
    }
}

std::vector<std::int32_t> Mlp::predict(std::span<const float> images) {
    const auto logits = run_layers(images);
    const std::size_t classes = layers_.back().size().outputs;
    std::vector<std::int32_t> best;
    for (std::size_t first = 0; first < logits.size(); first += classes) {
        const auto row = logits.subspan(first, classes);
        best.push_back(static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin()));
    }
    return best;
}

std::uint64_t digest(const Mlp& net) { return digest(net.parameters()); }

std::uint64_t digest(std::span<const ddp::Parameter> parameters) {
    std::uint64_t value = 0xCBF29CE484222325;
    for (const ddp::Parameter& parameter : parameters) {
        const auto* bytes = static_cast<const std::uint8_t*>(parameter.value.data);
        for (std::size_t i = 0; i < parameter.value.bytes(); ++i) {
            value = (value ^ bytes[i]) * 0x100000001B3;
        }
    }
    return value;
}

}  // namespace nn
