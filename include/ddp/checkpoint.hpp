// CheckpointManager: saves a net and its optimiser after an epoch and finds them again. One file in
// the safetensors format, written whole and renamed into place, so that it is old or new, never
// half.
#pragma once

#include <ddp/export.hpp>
#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/state_dict.hpp>
#include <ddp/tensor.hpp>

#include <filesystem>
#include <span>
#include <vector>

namespace ddp {

// A net in a DistributedDataParallel: what its reducer keeps goes along.
template <class T>
concept HasReducer = requires(T net) {
    { net.reducer().state_dict() } -> std::convertible_to<std::vector<NamedTensor>>;
};

class DDP_API CheckpointManager {
public:
    // `dir` is created by the first save; empty: no checkpoints at all. Borrows the group.
    CheckpointManager(std::filesystem::path dir, ProcessGroup& group);

    // Collective: rank 0 writes, all ranks learn whether that worked. `epoch` counts finished
    // epochs. `net` may be the one in a DistributedDataParallel, or that: with logical ranks, to
    // save their random state too. Throws CheckpointError on every rank (disk full, no permission);
    // the earlier checkpoint is then intact.
    template <class Net, HasStateDict Optimizer>
    void save(int epoch, Net& net, Optimizer& optimizer) {
        save(epoch, state_of(net, optimizer));
    }
    // Collective: rank 0 reads, the others receive. Returns the finished epochs of the checkpoint,
    // 0 when there is none. Throws CheckpointError on every rank when it is damaged or does not fit
    // the net; then nothing was changed.
    template <class Net, HasStateDict Optimizer>
    int load_latest(Net& net, Optimizer& optimizer) {
        const int epoch = load_latest(state_of(net, optimizer));
        if constexpr (HasReducer<Net>) net.reducer().load_state_dict();
        return epoch;
    }

    // The same for any tensors.
    void save(int epoch, const std::vector<NamedTensor>& state);
    int load_latest(const std::vector<NamedTensor>& state);

    const std::filesystem::path& dir() const noexcept { return dir_; }

private:
    template <class Net, class Optimizer>
    static std::vector<NamedTensor> state_of(Net& net, Optimizer& optimizer) {
        std::vector<NamedTensor> state;
        for (Parameter& parameter : std::span<Parameter>(net.parameters())) {
            state.push_back({"model." + parameter.name, parameter.value});
        }
        if constexpr (HasReducer<Net>) {
            for (const NamedTensor& named : net.reducer().state_dict()) {
                state.push_back({"reducer." + named.name, named.tensor});
            }
        }
        for (const NamedTensor& named : optimizer.state_dict()) {
            state.push_back({"optimizer." + named.name, named.tensor});
        }
        return state;
    }

    std::filesystem::path dir_;
    ProcessGroup* group_;
};

}  // namespace ddp
