// What a checkpoint costs: tools/bench/checkpoint.sh runs this, one rank or several.
//   ddp-checkpoint-cost save DIR MIB             prints the seconds of one save of so many MiB
//   ddp-checkpoint-cost steps DIR STEPS BLOCKS   trains in blocks of so many steps, in turn without
//       a checkpoint and with one: a save_async at the block's beginning, a wait() at its end.
//       Prints a line for each pair: seconds a step without, seconds a step with, and how many
//       seconds of the block save_async and wait held the training up.
#include <ddp/ddp.hpp>

#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// As many parameters as a net of so many MiB has, in tensors of 64 MiB; no two bytes in a row
// alike.
void time_save(ddp::ProcessGroup& group, const std::filesystem::path& dir, std::size_t mib) {
    constexpr std::size_t floats = std::size_t{16} << 20;
    std::vector<std::vector<float>> values(mib / 64);
    std::vector<ddp::NamedTensor> state;
    std::uint32_t bits = 1;
    for (auto& tensor : values) {
        tensor.resize(floats);
        for (float& value : tensor) {
            bits = bits * 1664525U + 1013904223U;
            value = static_cast<float>(bits) / 4294967296.0F;
        }
        state.push_back({"weight." + std::to_string(state.size()), tensor});
    }
    ddp::CheckpointManager checkpoints{dir, group};
    const auto start = Clock::now();
    checkpoints.save(1, state);
    std::printf("%.9f\n", seconds_since(start));
}

class Training {
public:
    Training(ddp::ProcessGroup& group, const std::filesystem::path& dir)
        : model_(net_, group), checkpoints_(dir, group) {
        for (std::size_t i = 0; i < batch * inputs; ++i) {
            images_.push_back(static_cast<float>(i * 37 % 101) / 101.0F);
        }
        for (std::size_t i = 0; i < batch; ++i)
            labels_.push_back(static_cast<std::int32_t>(i % 10));
    }

    // Seconds.
    double run(int steps) {
        const auto start = Clock::now();
        for (int step = 0; step < steps; ++step) {
            optimizer_.zero_grad();
            model_.forward(images_, labels_);
            if (model_.backward()) optimizer_.step();
            progress_.finish_step(batch);
        }
        return seconds_since(start);
    }
    double save() {
        const auto start = Clock::now();
        checkpoints_.save_async(progress_, net_, optimizer_);
        return seconds_since(start);
    }
    double wait() {
        const auto start = Clock::now();
        checkpoints_.wait();
        return seconds_since(start);
    }

private:
    static constexpr std::size_t inputs = 64;
    static constexpr std::size_t batch = 8;

    std::vector<float> images_;
    std::vector<std::int32_t> labels_;
    nn::Mlp net_{inputs, 3100, 3100, 10};
    nn::Sgd optimizer_{net_.parameters(), {.learning_rate = 0.01F, .momentum = 0.9F}};
    ddp::DistributedDataParallel<nn::Mlp> model_;
    ddp::CheckpointManager checkpoints_;
    ddp::Progress progress_;
};

void time_steps(ddp::ProcessGroup& group, const std::filesystem::path& dir, int steps, int blocks) {
    Training training{group, dir};
    training.run(2);
    training.save();  // the copy's memory is taken once
    training.wait();
    for (int block = 0; block < blocks; ++block) {
        const double without = training.run(steps);
        const double save = training.save();
        const double with = training.run(steps);
        const double wait = training.wait();
        if (group.rank() != 0) continue;
        std::printf("%.9f %.9f %.9f\n", without / steps, (save + with + wait) / steps, save + wait);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const std::vector<std::string_view> words(argv + 1, argv + argc);
        const bool saves = words.size() == 3 && words[0] == "save";
        if (!saves && (words.size() != 4 || words[0] != "steps")) {
            throw ddp::UsageError(
                "usage: ddp-checkpoint-cost save DIR MIB | steps DIR STEPS BLOCKS");
        }
        auto group = ddp::init_process_group();
        if (saves) return time_save(group, argv[2], std::strtoull(argv[3], nullptr, 10));
        time_steps(group, argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
    });
}
