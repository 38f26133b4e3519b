// CheckpointManager: saves a net, its optimiser and how far the training is, and finds them again:
// a folder of the last few checkpoints, each whole or absent whatever is killed, full or out of
// power. The bytes are specified in runtime/checkpoint/format.md.
#pragma once

#include <ddp/export.hpp>
#include <ddp/process_group.hpp>
#include <ddp/state_dict.hpp>
#include <ddp/tensor.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace ddp {

// A net in a DistributedDataParallel: what its reducer keeps for a checkpoint goes along.
template <class T>
concept HasReducer = requires(T net) {
    { net.reducer().state_dict() } -> std::convertible_to<std::vector<NamedTensor>>;
    net.reducer().load_state_dict();
};

// How far a training is. With `sampler.set_epoch(progress.epoch, progress.samples)` a resumed run
// sees the samples that are left of the epoch, each once, on any number of ranks.
// This is all that sampler and loader have of state.
struct Progress {
    int epoch = 0;            // finished epochs
    std::size_t samples = 0;  // of the next one, finished by all ranks together
    std::int64_t step = 0;    // the caller's own count, such as of optimiser steps

    // Views of the above, for a StateDict of the position; on load too.
    std::vector<NamedTensor> state_dict() {
        return {{"epoch", {&epoch, {}, DType::int32}},
                {"samples", {&samples, {}, DType::int64}},
                {"step", {&step, {}, DType::int64}}};
    }

    // After `count` further samples of the epoch, all ranks' together.
    void finish_step(std::size_t count) { samples += count, ++step; }
    void finish_epoch() { ++epoch, samples = 0; }
    friend bool operator==(const Progress&, const Progress&) = default;
};

// How many there are, and for how long ranks wait.
struct CheckpointOptions {
    std::size_t keep_last = 2;  // older ones are removed after a save; at least 1
    // How long one call may take on rank 0's disk, and the others wait for it: the group's own
    // timeout does not limit it. Then all ranks throw, rank 0 once its system call returns.
    std::chrono::milliseconds timeout = std::chrono::minutes{30};
};

class DDP_API CheckpointManager {
public:
    // `dir` is created by the first save; empty, on all ranks: no checkpoints at all (UsageError on
    // all ranks at the first call when only some have one). Borrows the group. One job at a time
    // may save into a folder. Tensors may be on GPUs, also on others than the group's: then they
    // are read and written after all that is on the GPU's streams.
    CheckpointManager(std::filesystem::path dir, ProcessGroup& group,
                      const CheckpointOptions& options = {});
    CheckpointManager(CheckpointManager&&) noexcept;
    CheckpointManager& operator=(CheckpointManager&&) noexcept;
    ~CheckpointManager();  // waits for a save_async; what went wrong with it is only logged

    // Collective: rank 0 writes, all ranks learn whether that worked. `net` may be the bare one or
    // the DistributedDataParallel around it: the names are the same. When it returns, the
    // checkpoint survives a loss of power. Throws CheckpointError on every rank (disk full, no
    // permission, a host that has lost contact with its job, which may go on elsewhere); the
    // earlier checkpoints are then intact. After a save_async that failed, if no call has said so
    // before, it throws that and saves nothing: call it again.
    template <class Net, HasStateDict Optimizer>
    void save(const Progress& progress, Net& net, Optimizer& optimizer) {
        save(progress, state_of(net, optimizer));
    }
    // Between two epochs: `epoch` counts the finished ones.
    template <class Net, HasStateDict Optimizer>
    void save(int epoch, Net& net, Optimizer& optimizer) {
        save(Progress{.epoch = epoch}, state_of(net, optimizer));
    }
    // Collective: copies the state, and a thread of rank 0 writes it while the training goes on.
    // Waits first for the save before it and throws what went wrong with that. Needs memory for one
    // copy on rank 0.
    template <class Net, HasStateDict Optimizer>
    void save_async(const Progress& progress, Net& net, Optimizer& optimizer) {
        save_async(progress, state_of(net, optimizer));
    }
    // Collective: returns when the last save_async is as safe as a save; throws as save does.
    void wait();

    // Collective: rank 0 chooses and reads, the others receive, so only its folder matters. Takes
    // the newest valid checkpoint; damaged ones before it are named in a warning each. All zero and
    // nothing changed when there is none. Throws CheckpointError on every rank when all are
    // damaged, the newest valid one does not fit the net or reading takes too long; then nothing
    // was changed.
    template <class Net, HasStateDict Optimizer>
    Progress resume(Net& net, Optimizer& optimizer) {
        const Progress progress = resume(state_of(net, optimizer));
        if constexpr (HasReducer<Net>) net.reducer().load_state_dict();
        return progress;
    }
    // The same for a program that saves between epochs only: returns the finished ones. Throws
    // UsageError for a checkpoint from the middle of an epoch.
    template <class Net, HasStateDict Optimizer>
    int load_latest(Net& net, Optimizer& optimizer) {
        return finished_epochs(resume(net, optimizer));
    }

    // The same for any tensors.
    void save(const Progress& progress, const std::vector<NamedTensor>& state);
    void save(int epoch, const std::vector<NamedTensor>& state) {
        save(Progress{.epoch = epoch}, state);
    }
    void save_async(const Progress& progress, const std::vector<NamedTensor>& state);
    Progress resume(const std::vector<NamedTensor>& state);
    int load_latest(const std::vector<NamedTensor>& state) {
        return finished_epochs(resume(state));
    }

    const std::filesystem::path& dir() const noexcept;  // as the constructor got it

private:
    template <class Net, class Optimizer>
    static std::vector<NamedTensor> state_of(Net& net, Optimizer& optimizer) {
        std::vector<NamedTensor> state;
        for (const NamedTensor& named : named_tensors(net)) {
            state.push_back({"model." + named.name, named.tensor});
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

    int finished_epochs(const Progress& progress) const;  // throws UsageError in the middle of one

    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
