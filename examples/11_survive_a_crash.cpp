// Ranks are killed in the middle of an epoch, the launcher starts all anew, and the training goes
// on from its last checkpoint: the weights at the end are those of a run that nobody disturbed.
//   run:       ddp-launch --nproc-per-node=2 --max-restarts=3 ./11_survive_a_crash DIR 3
//   the same weights, undisturbed, on any number of ranks that divides 8:
//              ddp-launch --nproc-per-node=4 ./11_survive_a_crash OTHER_DIR
//   expected:  attempt 0 begins at epoch 0, sample 0        on stderr, from rank 0
//              attempt 1 begins at epoch 1, sample 640      where it begins depends on the kill
//              ...                                          and the launcher's report of each kill
//              rank 0 of 2: accuracy 0.9722 weights a045b08b7df0ae64    at the end, on stdout, and
//              rank 1 of 2: accuracy 0.9722 weights a045b08b7df0ae64    the same after every run
#include <ddp/ddp.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "nn/digits.hpp"
#include "nn/digits_program.hpp"
#include "nn/mlp.hpp"
#include "nn/sgd.hpp"

using namespace nn;

namespace {

constexpr int epochs = 15;
constexpr std::size_t logical_ranks = 8;  // the same bits on 1, 2, 4 or 8 ranks
constexpr std::size_t batch_size = 8;     // of each of them
constexpr int save_every = 10;            // steps

// In each of the first `kills` attempts some rank has an accident after some step.
class Accident {
public:
    Accident(const ddp::ProcessGroup& group, int attempt, int kills, unsigned seed) {
        std::mt19937 random{seed + static_cast<unsigned>(attempt)};
        const auto victim = static_cast<int>(random() % static_cast<unsigned>(group.size()));
        const auto steps = 30 + static_cast<int>(random() % 40);
        if (attempt < kills && victim == group.rank()) steps_left_ = steps;
    }
    void step() {
        if (--steps_left_ == 0) std::raise(SIGKILL);
    }

private:
    int steps_left_ = 0;  // 0: none
};

}  // namespace

int main(int argc, char** argv) {
    return ddp::run_worker([&] {
        if (argc > 1 && argv[1][0] == '-') {
            throw ddp::UsageError("usage: 11_survive_a_crash [DIR [KILLS [SEED]]]");
        }
        const std::filesystem::path dir = argc > 1 ? argv[1] : "";  // empty: no checkpoints
        const int kills = argc > 2 ? std::atoi(argv[2]) : 0;
        const unsigned seed = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 0;
        auto group = ddp::init_process_group();
        const int attempt = ddp::worker_env().attempt;

        const auto data = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "data";
        const auto [train, test] = Digits::load(data).split_every(5);
        ddp::DistributedSampler sampler{
            train.size(),
            group.shard(),
            {.seed = 17, .drop_last = true, .logical_ranks = logical_ranks}};
        ddp::DataLoader loader{train, sampler, {.batch_size = batch_size, .drop_last = true}};

        Mlp net{64, 128, 10};
        Sgd optimizer{net.parameters(), {.learning_rate = 0.1F, .momentum = 0.9F}};
        ddp::DistributedDataParallel model{net, group, {.logical_ranks = logical_ranks}};
        ddp::CheckpointManager checkpoints{dir, group};

        auto progress = checkpoints.resume(net, optimizer);
        if (group.rank() == 0) {
            std::fprintf(stderr, "attempt %d begins at epoch %d, sample %zu\n", attempt,
                         progress.epoch, progress.samples);
        }
        Accident accident{group, attempt, kills, seed};
        for (; progress.epoch < epochs; progress.finish_epoch()) {
            sampler.set_epoch(progress.epoch, progress.samples);  // what is left of the epoch
            for (const auto& [images, labels] : loader) {
                model.forward(images, labels);
                if (!model.backward()) continue;  // another logical rank of this one comes first
                optimizer.step();
                optimizer.zero_grad();
                progress.finish_step(logical_ranks * batch_size);
                if (progress.step % save_every == 0) {
                    checkpoints.save_async(progress, net, optimizer);  // written while we go on
                }
                accident.step();
            }
        }
        checkpoints.save(progress, net, optimizer);
        print_result(group, accuracy(net, test), digest(net));
    });
}
