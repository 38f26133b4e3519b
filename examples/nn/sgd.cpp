// Reads where value and gradient are at each call: wrapping a net moves its gradients. Plain loops,
// element by element, so that the same gradients give the same weights everywhere.
#include "nn/sgd.hpp"

#include <algorithm>

namespace nn {

Sgd::Sgd(std::span<ddp::Parameter> parameters, const SgdOptions& options)
    : parameters_(parameters), options_(options) {
    for (const ddp::Parameter& parameter : parameters) {
        velocities_.emplace_back(parameter.value.numel());
    }
}

void Sgd::zero_grad() {
    for (const ddp::Parameter& parameter : parameters_) {
        std::ranges::fill(parameter.grad.as<float>(), 0.0F);
    }
}

void Sgd::step() {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const auto weights = parameters_[p].value.as<float>();
        const auto gradients = parameters_[p].grad.as<float>();
        std::vector<float>& velocity = velocities_[p];
        for (std::size_t i = 0; i < weights.size(); ++i) {
            velocity[i] = options_.momentum * velocity[i] + gradients[i];
            weights[i] -= options_.learning_rate * velocity[i];
        }
    }
}

std::vector<ddp::NamedTensor> Sgd::state_dict() {
    std::vector<ddp::NamedTensor> state;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const ddp::TensorView& value = parameters_[p].value;
        state.push_back(
            {"momentum." + parameters_[p].name, {velocities_[p].data(), value.shape, value.dtype}});
    }
    return state;
}

}  // namespace nn
