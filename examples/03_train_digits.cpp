// Trains a small network on handwritten digits on every rank; each ends with the same weights.
//   run:       ddp-launch --nproc-per-node=2 ./03_train_digits   (alone: a world of one rank)
//   on GPUs:   add --device cuda
//   the same bits from 1, 2, 4 or 8 ranks:  add --logical-ranks 8
//   expected:  epoch 1 loss 2.17486             30 such lines on stderr, from rank 0
//              rank 0 of 2: accuracy 0.9722 weights 76d6e7c316c4f2b8    at the end, on stdout; the
//              rank 1 of 2: accuracy 0.9722 weights 76d6e7c316c4f2b8    same weights on each rank
#include <ddp/ddp.hpp>

#include "nn/cuda_mlp.hpp"
#include "nn/digits.hpp"  // Digits, Mlp, Sgd: the example's own data set, model and optimiser
#include "nn/digits_program.hpp"  // its options and the lines that it prints
#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

#include <cstdint>

using namespace nn;

namespace {

constexpr SgdOptions sgd{.learning_rate = 0.1F, .momentum = 0.9F};

// The same for a net on the CPU and for one on a GPU.
template <class Net, class Optimizer>
void train(ddp::ProcessGroup& group, const Digits& data, Net& net, Optimizer& optimizer,
           const TrainOptions& options) {
    ddp::DistributedSampler sampler{
        data.size(),
        group.shard(),
        {.seed = 17, .drop_last = true, .logical_ranks = options.logical_ranks}};
    ddp::DataLoader loader{
        data, sampler, {.batch_size = options.batch_size(group), .drop_last = true}};

    // From here on all ranks hold rank 0's weights.
    ddp::DistributedDataParallel model{net, group, {.logical_ranks = options.logical_ranks}};
    ddp::CheckpointManager checkpoints{options.checkpoint_dir, group};  // an empty name: none

    auto epoch = checkpoints.load_latest(net, optimizer);
    report_start(group, epoch, options);
    std::int64_t step = 0;
    for (; epoch < options.epochs; ++epoch) {
        sampler.set_epoch(epoch);
        double loss = 0;
        for (const auto& [images, labels] : loader) {
            loss += model.forward(images, labels);
            if (model.backward()) {  // buckets are averaged while this runs
                optimizer.step();
                optimizer.zero_grad();
                group.publish_progress(++step);  // for the launcher's status line, and inspect
            }
        }
        const double mean = loss / static_cast<double>(loader.size());
        report(group, epoch + 1, group.all_reduce(mean, ddp::ReduceOp::avg));
        checkpoints.save(epoch + 1, net, optimizer);  // rank 0 writes, all ranks agree
    }
}

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        const auto options = parse_options(argc, argv);
        auto group = ddp::init_process_group({.backend = options.backend()});
        const auto [data, test] = Digits::load(options.data).split_every(5);

        Mlp net{64, 128, 10};
        if (options.on_gpu) {
            CudaMlp on_gpu{net, group.device()};
            CudaSgd optimizer{on_gpu, sgd};
            train(group, data, on_gpu, optimizer, options);
            on_gpu.copy_to(net);
        } else {
            Sgd optimizer{net.parameters(), sgd};
            train(group, data, net, optimizer, options);
        }
        print_result(group, accuracy(net, test), digest(net));
    });
}
