// Loads weights that Python's DataParallel saved, and saves them as safetensors. Shows the trap:
// every name in such a file begins with "module.", which the net's own names do not.
//   run:       ./08_save_and_load
//   expected:  as it is: state dict: it does not fit; nothing was changed. Missing key(s) in ...
//              "layers.0.weight", ... {.strip_prefix = "module."}).      the trap, and its cure
//              without the prefix: accuracy 0.9778, as in Python
//              saved and loaded again: the same weights
#include <ddp/ddp.hpp>

#include <cstdio>
#include <filesystem>

#include "nn/digits.hpp"
#include "nn/mlp.hpp"

using namespace nn;

int main() {
    return ddp::run_worker([] {
        const auto data = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "data";
        const auto [train, test] = Digits::load(data).split_every(5);

        Mlp net{64, 128, 10};
        const auto state = ddp::read_state_dict(data / "digits_data_parallel.pth");
        try {
            ddp::load_state_dict(net, state);
        } catch (const ddp::CheckpointError& error) {
            std::printf("as it is: %s\n", error.what());
        }
        ddp::load_state_dict(net, state, {.strip_prefix = "module."});
        std::printf("without the prefix: accuracy %.4f, as in Python\n", accuracy(net, test));

        const auto file = std::filesystem::temp_directory_path() / "08_save_and_load.safetensors";
        ddp::write_state_dict(file, ddp::StateDict{ddp::named_tensors(net)});
        Mlp again{64, 128, 10};
        ddp::load_state_dict(again, ddp::read_state_dict(file));
        std::filesystem::remove(file);
        std::printf("saved and loaded again: %s weights\n",
                    digest(again) == digest(net) ? "the same" : "OTHER");
    });
}
