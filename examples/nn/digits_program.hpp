// What the digits example says and hears: its command line and the lines that it prints. Apart from
// the training program, so that the latter shows nothing but training.
#pragma once

#include <ddp/process_group.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace nn {

struct TrainOptions {
    std::filesystem::path data;  // the folder of digits.csv.gz
    int epochs = 30;
    std::size_t global_batch = 0;          // samples in a step of all ranks; 0: 64 a (logical) rank
    std::size_t logical_ranks = 0;         // 0: as many as ranks
    std::filesystem::path checkpoint_dir;  // empty: no checkpoints
    bool on_gpu = false;

    ddp::Backend backend() const { return on_gpu ? ddp::Backend::nccl : ddp::Backend::automatic; }

    // Samples in a step of one (logical) rank. Throws ddp::UsageError when they cannot share
    // equally.
    std::size_t batch_size(const ddp::ProcessGroup& group) const;
};

// Throws ddp::UsageError for what it does not understand. --help prints the options and exits.
TrainOptions parse_options(int argc, char** argv);

// Rank 0 prints on stderr: "epoch 3 loss 0.213127" (three epochs are finished).
void report(const ddp::ProcessGroup& group, int epoch, double loss);
// Rank 0 prints on stderr, when there is nothing to do: "nothing to do: epoch 30 of 30 in DIR".
void report_start(const ddp::ProcessGroup& group, int epoch, const TrainOptions& options);
// Each rank prints on stdout: "rank 0 of 2: accuracy 0.9694 weights 9f3c51d2a0b44e17".
void print_result(const ddp::ProcessGroup& group, double accuracy, std::uint64_t weights);

}  // namespace nn
