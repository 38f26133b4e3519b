// A rank's training steps, with and without DistributedDataParallel around the net: what
// tools/bench/step_cost.sh counts and times. Prints seconds a step; `logical`, on rank 0: medians
// of steps without logical ranks and with as many as ranks, taken in turn.
//   ddp-step-cost digits|wide plain|wrapped|logical STEPS
#include <ddp/ddp.hpp>

#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
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
        static_cast<void>(model.backward());
        optimizer.step();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return took.count() / steps;
}

constexpr nn::SgdOptions sgd{.learning_rate = 0.01F, .momentum = 0.9F};

struct Case {
    nn::Mlp (*make_net)();
    std::size_t batch;
    int steps;
};

double run(ddp::ProcessGroup& group, const Case& of, bool wrapped) {
    nn::Mlp net = of.make_net();
    nn::Sgd optimizer{net.parameters(), sgd};
    const Data data = make_data(of.batch);
    if (!wrapped) return seconds_a_step(net, optimizer, data, of.steps);
    ddp::DistributedDataParallel model{net, group};
    return seconds_a_step(model, optimizer, data, of.steps);
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

void compare_logical_ranks(ddp::ProcessGroup& group, const Case& of) {
    nn::Mlp net = of.make_net();
    nn::Mlp logical_net = of.make_net();
    nn::Sgd optimizer{net.parameters(), sgd};
    nn::Sgd logical_optimizer{logical_net.parameters(), sgd};
    const Data data = make_data(of.batch);
    const auto ranks = static_cast<std::size_t>(group.size());
    ddp::DistributedDataParallel model{net, group};
    ddp::DistributedDataParallel logical_model{logical_net, group, {.logical_ranks = ranks}};
    std::vector<double> times;
    std::vector<double> logical_times;
    for (int step = 0; step < of.steps; ++step) {
        times.push_back(seconds_a_step(model, optimizer, data, 1));
        logical_times.push_back(seconds_a_step(logical_model, logical_optimizer, data, 1));
    }
    if (group.rank() == 0) std::printf("%.9f %.9f\n", median(times), median(logical_times));
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
        const Case of = words[0] == "digits" ? Case{[] {
                                                        return nn::Mlp{64, 128, 10};
                                                    },
                                                    64, steps}
                                             : Case{[] {
                                                        return nn::Mlp{64, 3100, 3100, 10};
                                                    },
                                                    8, steps};
        if (words[1] == "logical") return compare_logical_ranks(group, of);
        std::printf("%.9f\n", run(group, of, words[1] == "wrapped"));
    });
}
