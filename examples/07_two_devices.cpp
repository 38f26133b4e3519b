// A model split over two devices, for models that are too large for one: the first layer lives on
// the first device, the second on the second, and what crosses are the activations on the way
// forward and their gradients on the way back. ddp has no autograd: both are written by hand here.
//   run:       DDP_CPU_DEVICES=2 ./07_two_devices
//   options:   --device auto|cpu|cuda
//   expected with two devices:
//     first layer on cpu, second layer on cpu:1
//     step 0 loss 4.5616
//     step 100 loss 0.2755
//     step 200 loss 0.1182
//     step 300 loss 0.0649
//     step 400 loss 0.0486
//     step 500 loss 0.0410
//   expected with one device:
//     both layers on cpu, the only device (DDP_CPU_DEVICES=2 makes two)
//     step 0 loss 4.5616
//     step 100 loss 0.2755
//     step 200 loss 0.1182
//     step 300 loss 0.0649
//     step 400 loss 0.0486
//     step 500 loss 0.0410
// The losses are the same bits either way.
#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/tensor_functions.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "nn/device_option.hpp"

namespace {

constexpr std::int64_t rows = 64;
constexpr std::int64_t inputs = 4;
constexpr std::int64_t hidden = 16;

// y = x W^T + b, with weights and arithmetic on one device. The arithmetic is plain loops over host
// memory, to which a GPU's tensors are copied: in a program for GPUs a kernel stands there.
class Layer {
public:
    Layer(std::int64_t from, std::int64_t to, std::uint64_t seed, const ddp::Device& device)
        : weight_(ddp::randn({to, from}, seed, {.device = device})),
          bias_(ddp::zeros({to}, {.device = device})) {}

    // x may be anywhere: it is moved to where the layer is, and the result stays there.
    ddp::Tensor forward(const ddp::Tensor& x) {
        input_ = x.to(weight_.device());
        const auto x_values = on_host(input_), weight = on_host(weight_), bias = on_host(bias_);
        const auto y = ddp::empty({x.size(0), weight_.size(0)});
        const auto outputs = static_cast<std::size_t>(y.size(1));
        const auto width = static_cast<std::size_t>(x.size(1));
        for (std::size_t at = 0; at < y.numel(); ++at) {
            const std::size_t row = at / outputs, out = at % outputs;
            float sum = bias.as<float>()[out];
            for (std::size_t in = 0; in < width; ++in) {
                sum +=
                    x_values.as<float>()[row * width + in] * weight.as<float>()[out * width + in];
            }
            y.as<float>()[at] = sum;
        }
        return y.to(weight_.device());
    }

    // From the gradient of y, anywhere, the gradient of x, here; and a step of gradient descent.
    ddp::Tensor backward(const ddp::Tensor& y_gradient, float learning_rate) {
        const auto dy = on_host(y_gradient.to(weight_.device()));
        const auto x = on_host(input_), weight = on_host(weight_), bias = on_host(bias_);
        const auto dx = ddp::zeros(x.shape());
        const auto new_weight = weight.clone();
        const auto outputs = static_cast<std::size_t>(weight.size(0));
        const auto width = static_cast<std::size_t>(weight.size(1));
        for (std::size_t at = 0; at < dy.numel(); ++at) {
            const std::size_t row = at / outputs, out = at % outputs;
            const float slope = dy.as<float>()[at];
            bias.as<float>()[out] -= learning_rate * slope;
            for (std::size_t in = 0; in < width; ++in) {
                dx.as<float>()[row * width + in] += slope * weight.as<float>()[out * width + in];
                new_weight.as<float>()[out * width + in] -=
                    learning_rate * slope * x.as<float>()[row * width + in];
            }
        }
        ddp::copy_elements(new_weight, weight_);
        ddp::copy_elements(bias, bias_);
        return dx.to(weight_.device());
    }

private:
    static ddp::Tensor on_host(const ddp::Tensor& tensor) { return tensor.to(ddp::Device{}); }

    ddp::Tensor weight_, bias_, input_;
};

// tanh of the first layer goes into the second.
class SplitModel {
public:
    SplitModel(const ddp::Device& first, const ddp::Device& second)
        : first_(inputs, hidden, 1, first), second_(hidden, 1, 2, second) {}

    ddp::Tensor forward(const ddp::Tensor& x) {
        active_ = first_.forward(x).to(ddp::Device{});
        for (float& value : active_.as<float>()) value = std::tanh(value);
        return second_.forward(active_);
    }
    void backward(const ddp::Tensor& gradient, float learning_rate) {
        const auto inner = second_.backward(gradient, learning_rate).to(ddp::Device{});
        for (std::size_t i = 0; i < inner.numel(); ++i) {
            const float value = active_.as<float>()[i];
            inner.as<float>()[i] *= 1 - value * value;
        }
        static_cast<void>(first_.backward(inner, learning_rate));
    }

private:
    Layer first_, second_;
    ddp::Tensor active_;  // of the last forward
};

// The mean of the squared errors, and its gradient in place of the predictions.
double loss_of(const ddp::Tensor& predictions, const ddp::Tensor& targets) {
    double sum = 0;
    for (std::size_t i = 0; i < predictions.numel(); ++i) {
        const float error = predictions.as<float>()[i] - targets.as<float>()[i];
        sum += static_cast<double>(error) * error;
        predictions.as<float>()[i] = 2 * error / static_cast<float>(rows);
    }
    return sum / rows;
}

void train(SplitModel& model) {
    const auto x = ddp::randn({rows, inputs}, 3);
    const auto y = ddp::empty({rows, 1});
    for (std::size_t row = 0; row < rows; ++row) {
        const auto values = x.as<float>().subspan(row * inputs, inputs);
        y.as<float>()[row] = values[0] * values[1] + values[2] - values[3];
    }
    for (int step = 0; step <= 500; ++step) {
        const auto predictions = model.forward(x).to(ddp::Device{});
        const double loss = loss_of(predictions, y);
        model.backward(predictions, 0.05F);
        if (step % 100 == 0) std::printf("step %d loss %.4f\n", step, loss);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const bool chosen = argc == 3 && std::string(argv[1]) == "--device";
        if (argc != 1 && !chosen) throw ddp::UsageError("options: --device auto|cpu|cuda");
        const auto devices = nn::devices_for(chosen ? argv[2] : "auto");
        const std::string first = to_string(devices.front());
        if (devices.size() > 1) {
            std::printf("first layer on %s, second layer on %s\n", first.c_str(),
                        to_string(devices[1]).c_str());
        } else {
            std::printf("both layers on %s, the only device (DDP_CPU_DEVICES=2 makes two)\n",
                        first.c_str());
        }
        SplitModel model{devices.front(), devices.size() > 1 ? devices[1] : devices.front()};
        train(model);
    });
}
