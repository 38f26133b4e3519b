// A rank's training steps, with and without DistributedDataParallel around the net, and with as
// many logical ranks as ranks: what tools/bench/step_cost.sh counts and times. Rank 0 prints
// seconds a step.
//   ddp-step-cost digits|wide plain|wrapped|logical STEPS
#include <ddp/ddp.hpp>

#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Data {
    std::vector<float> images;
    std::vector<std::int32_t> labels;
};

Data make_data(std::size_t batch) {
    constexpr std::size_t inputs = 64;
    Data data;
    for (std::size_t i = 0; i < batch * inputs; ++i) {
        data.images.push_back(static_cast<float>(i * 37 % 101) / 101.0F);
    }
    for (std::size_t i = 0; i < batch; ++i)
        data.labels.push_back(static_cast<std::int32_t>(i % 10));
    return data;
}

// `model` is the net or its wrapper.
double seconds_a_step(auto& model, nn::Sgd& optimizer, const Data& data, int steps) {
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        model.forward(data.images, data.labels);
        model.backward();
        optimizer.step();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return took.count() / steps;
}

double run(ddp::ProcessGroup& group, nn::Mlp&& net, std::string_view mode, std::size_t batch,
           int steps) {
    nn::Sgd optimizer{net.parameters(), {.learning_rate = 0.01F, .momentum = 0.9F}};
    const Data data = make_data(batch);
    if (mode == "plain") return seconds_a_step(net, optimizer, data, steps);
    const auto ranks = static_cast<std::size_t>(group.size());
    ddp::DistributedDataParallel model{
        net, group, {.logical_ranks = mode == "logical" ? ranks : std::size_t{0}}};
    return seconds_a_step(model, optimizer, data, steps);
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const std::vector<std::string_view> words(argv + 1, argv + argc);
        if (words.size() != 3 || (words[0] != "digits" && words[0] != "wide") ||
            (words[1] != "plain" && words[1] != "wrapped" && words[1] != "logical")) {
            throw ddp::UsageError("usage: ddp-step-cost digits|wide plain|wrapped|logical STEPS");
        }
        const int steps = std::atoi(argv[3]);
        auto group = ddp::init_process_group();
        const double seconds = words[0] == "digits"
                                   ? run(group, nn::Mlp{64, 128, 10}, words[1], 64, steps)
                                   : run(group, nn::Mlp{64, 3100, 3100, 10}, words[1], 8, steps);
        if (group.rank() == 0) std::printf("%.9f\n", seconds);
    });
}
