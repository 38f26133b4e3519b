// Trains a net of ten million parameters for twenty steps as eight logical ranks, on data made up
// from each logical rank's number, and prints the weights' digest.
#include <ddp/ddp.hpp>

#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

int main() {
    return ddp::run_worker([] {
        constexpr std::size_t inputs = 64;
        constexpr int steps = 20;
        auto group = ddp::init_process_group();
        nn::Mlp net{inputs, 3100, 3100, 10};
        nn::Sgd optimizer{net.parameters(), {.learning_rate = 0.05F, .momentum = 0.9F}};
        ddp::DistributedDataParallel model{net, group, {.logical_ranks = 8}};
        for (int step = 0; step < steps;) {
            std::mt19937 random(static_cast<std::uint32_t>(8 * static_cast<std::size_t>(step) +
                                                           model.reducer().logical_rank().index));
            std::vector<float> image(inputs);
            for (float& pixel : image) pixel = static_cast<float>(random() % 1000) / 1000.0F;
            const std::vector<std::int32_t> label{static_cast<std::int32_t>(random() % 10)};
            model.forward(image, label);
            if (!model.backward()) continue;
            optimizer.step();
            optimizer.zero_grad();
            ++step;
        }
        std::printf("%016llx\n", static_cast<unsigned long long>(digest(net)));
    });
}
