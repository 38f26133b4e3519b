// Stochastic gradient descent with momentum, torch.optim.SGD's rule: v = momentum * v + g; w -=
// rate * v.
#pragma once

#include <ddp/parameter.hpp>

#include <span>
#include <vector>

namespace nn {

struct SgdOptions {
    float learning_rate;
    float momentum = 0;
};

class Sgd {
public:
    // Borrows the parameters. May be made before or after the net is wrapped.
    Sgd(std::span<ddp::Parameter> parameters, const SgdOptions& options);

    void zero_grad();
    void step();
    // "momentum.<parameter>": what a checkpoint needs to go on with the same bits.
    std::vector<ddp::NamedTensor> state_dict();

private:
    std::span<ddp::Parameter> parameters_;
    SgdOptions options_;
    std::vector<std::vector<float>> velocities_;  // in the order of the parameters
};

}  // namespace nn
