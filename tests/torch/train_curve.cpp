// Trains the net of torch_curve.py, from the same weights and data, and prints the same lines: this
// rank's loss of each step. usage: train_curve float32|float64 [cuda]
#include <ddp/process_group.hpp>
#include <ddp/run_worker.hpp>
#include <ddp/torch.hpp>

#include <torch/torch.h>

#include <cstdio>
#include <string_view>

namespace {

constexpr int steps = 50;
constexpr std::int64_t batch = 8;  // a rank

torch::nn::Sequential make_net(torch::Dtype type) {
    torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)),
                              torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(8 * 64, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 10));
    net->to(type);
    const torch::NoGradGuard no_grad;
    std::int64_t number = 0;
    for (torch::Tensor& value : net->parameters()) {
        const auto counts = torch::arange(value.numel(), torch::kInt64) * 7919 + number * 104729;
        value.copy_(((counts % 1000 - 500).to(torch::kFloat64) / 5000).view(value.sizes()));
        ++number;
    }
    return net;
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const auto type =
            argc > 1 && std::string_view(argv[1]) == "float64" ? torch::kFloat64 : torch::kFloat32;
        const bool on_gpu = argc > 2 && std::string_view(argv[2]) == "cuda";
        auto group = ddp::init_process_group(
            {.backend = on_gpu ? ddp::Backend::nccl : ddp::Backend::automatic});
        const torch::Device device =
            on_gpu ? ddp::libtorch::torch_device(group.device()) : torch::kCPU;
        auto net = make_net(type);
        net->to(device);
        torch::optim::SGD optimizer(net->parameters(),
                                    torch::optim::SGDOptions(0.05).momentum(0.9));
        ddp::libtorch::DistributedDataParallel model{
            net, group, {.reducer = {.bucket_cap_mb = 0.01}}};
        for (int step = 0; step < steps; ++step) {
            const auto first = (step * group.size() + group.rank()) * batch;
            const auto rows = torch::arange(first, first + batch, torch::kInt64);
            const auto pixels = rows.view({batch, 1}) * 31 + torch::arange(64, torch::kInt64) * 17;
            const auto images = ((pixels % 97).to(type).view({batch, 1, 8, 8}) / 97).to(device);
            const auto labels = ((rows * rows + rows * 3) % 10).to(device);
            optimizer.zero_grad();
            auto loss = torch::cross_entropy_loss(model->forward(images), labels);
            loss.backward();
            optimizer.step();
            std::printf("step %d rank %d loss %.17g\n", step, group.rank(), loss.item<double>());
        }
    });
}
