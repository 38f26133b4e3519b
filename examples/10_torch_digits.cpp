// Trains a small convolutional LibTorch net on handwritten digits on every rank.
//   run:       ddp-launch --nproc-per-node=2 ./10_torch_digits   (alone: a world of one rank)
//   on GPUs:   the same, where each rank has one and torch was built with CUDA
//   expected:  epoch 1 loss 2.29237             15 such lines on stderr, from rank 0
//              rank 0 of 2: accuracy 0.9861 weights 0f1f0ee13c6feddc    at the end, on stdout; the
//              rank 1 of 2: accuracy 0.9861 weights 0f1f0ee13c6feddc    same weights on each rank
#include <ddp/ddp.hpp>
#include <ddp/torch.hpp>

#include <torch/torch.h>

#include <filesystem>
#include <vector>

#include "nn/digits.hpp"          // the example's own data set
#include "nn/digits_program.hpp"  // the lines that it prints
#include "nn/mlp.hpp"             // digest()

struct NetImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) {
        x = torch::relu(conv1(x));
        x = torch::max_pool2d(torch::relu(conv2(x)), 2);
        return linear(x.flatten(1));
    }
    torch::nn::Conv2d conv1 =
        register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)));
    torch::nn::Conv2d conv2 =
        register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)));
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(32 * 4 * 4, 10));
};
TORCH_MODULE(Net);

struct DigitsData : torch::data::datasets::Dataset<DigitsData> {
    explicit DigitsData(const nn::Digits& digits)
        : images(torch::tensor(digits.all().images).view({-1, 1, 8, 8})),
          labels(torch::tensor(digits.all().labels).to(torch::kInt64)) {}
    torch::data::Example<> get(std::size_t index) override {
        const auto i = static_cast<std::int64_t>(index);
        return {images[i], labels[i]};
    }
    torch::optional<std::size_t> size() const override {
        return static_cast<std::size_t>(labels.size(0));
    }
    torch::Tensor images, labels;
};

double accuracy(Net& net, const DigitsData& test) {
    const torch::NoGradGuard no_grad;
    const auto device = net->linear->weight.device();
    const auto guesses = net(test.images.to(device)).argmax(1).cpu();
    return guesses.eq(test.labels).to(torch::kFloat64).mean().item<double>();
}

std::uint64_t digest(Net& net) {
    net->to(torch::kCPU);
    std::vector<ddp::Parameter> parameters;
    for (const auto& named : net->named_parameters()) {
        parameters.push_back({named.key(), ddp::libtorch::view(named.value()), {}});
    }
    return nn::digest(parameters);
}

int main() {
    return ddp::run_worker([] {
        auto group = ddp::init_process_group();
        const auto program = std::filesystem::read_symlink("/proc/self/exe");
        const auto digits = nn::Digits::load(program.parent_path() / "data").split_every(5);
        DigitsData train{digits.first};
        const DigitsData test{digits.second};

        ddp::libtorch::DistributedSampler sampler{
            digits.first.size(), group.shard(), {.seed = 17, .drop_last = true}};
        auto loader =
            torch::data::make_data_loader(train.map(torch::data::transforms::Stack<>()), sampler,
                                          torch::data::DataLoaderOptions(64).drop_last(true));

        torch::manual_seed(1);
        Net net;
        const auto device = ddp::libtorch::torch_device(group.device());
        net->to(device);
        torch::optim::SGD optimizer{net->parameters(),
                                    torch::optim::SGDOptions(0.03).momentum(0.9)};
        ddp::libtorch::DistributedDataParallel model{net, group};  // all hold rank 0's weights

        for (int epoch = 0; epoch < 15; ++epoch) {
            sampler.set_epoch(epoch);
            double sum = 0;
            int steps = 0;
            for (const auto& batch : *loader) {
                optimizer.zero_grad();
                auto guesses = model(batch.data.to(device));
                auto loss = torch::cross_entropy_loss(guesses, batch.target.to(device));
                loss.backward();  // buckets are averaged while this runs
                optimizer.step();
                sum += loss.item<double>();
                ++steps;
            }
            nn::report(group, epoch + 1, group.all_reduce(sum / steps, ddp::ReduceOp::avg));
        }
        nn::print_result(group, accuracy(net, test), digest(net));
    });
}
