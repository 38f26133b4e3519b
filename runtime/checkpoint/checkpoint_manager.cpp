// Rank 0 does the work with the folder; the others hear how it went before they see any data, so
// that all ranks go on or throw together. No rank is left out by a folder's name that only it has.
#include <ddp/checkpoint.hpp>
#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/process/background_thread.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/on_rank_0.hpp"
#include "checkpoint/staging.hpp"

namespace ddp {

namespace {

using checkpoint::Outcome;

void check(const Progress& progress) {
    if (progress.epoch >= 0 && progress.step >= 0) return;
    throw UsageError("checkpoint: epoch " + std::to_string(progress.epoch) + ", step " +
                     std::to_string(progress.step) +
                     ": pass the number of finished ones, which is not negative");
}

// The first one's that is on a GPU, else the CPU.
Device device_of(const std::vector<NamedTensor>& state) {
    for (const auto& [name, tensor] : state) {
        if (tensor.device.type != DeviceType::cpu) return tensor.device;
    }
    return {};
}

}  // namespace

class __attribute__((visibility("hidden"))) CheckpointManager::Impl {
public:
    Impl(const std::filesystem::path& dir, ProcessGroup& group, const CheckpointOptions& options)
        : dir_(dir),
          group_(group),
          timeout_(options.timeout),
          folder_(checkpoint::system_files(), dir, options.keep_last) {
        if (options.keep_last == 0) {
            throw UsageError("checkpoint: keep_last is 0; keep at least 1");
        }
        if (options.timeout <= std::chrono::milliseconds{0}) {
            throw UsageError("checkpoint: a timeout of " + std::to_string(options.timeout.count()) +
                             " ms; give it some time");
        }
    }
    ~Impl() {
        if (writer_.joinable()) writer_.join();
        for (const std::string& error : {unreported_error_, error_}) {
            if (!error.empty()) base::log_error("checkpoint", error);
        }
    }

    const std::filesystem::path& dir() const noexcept { return dir_; }

    // Whether there are to be checkpoints. Collective the first time: some ranks would wait for
    // those without a folder's name.
    bool has_folder() {
        if (agreed_) return !dir_.empty();
        constexpr int nobody = std::numeric_limits<int>::max();
        std::array<int, 2> first_ranks{nobody, nobody};  // with a name, without one
        first_ranks[dir_.empty() ? 1 : 0] = group_.rank();
        group_.all_reduce(first_ranks, ReduceOp::min, {}, CallSite{}).wait();
        if (first_ranks[0] != nobody && first_ranks[1] != nobody) {
            throw UsageError("checkpoint: rank " + std::to_string(first_ranks[0]) +
                             " has a folder's name, rank " + std::to_string(first_ranks[1]) +
                             " an empty one; give all ranks one, or none");
        }
        agreed_ = true;
        return !dir_.empty();
    }

    void save(const Progress& progress, const std::vector<NamedTensor>& state) {
        on_rank_0(state, [&] {
            finish();
            folder_.write(progress, state);
            return Outcome{};
        });
    }
    void save_async(const Progress& progress, const std::vector<NamedTensor>& state) {
        on_rank_0(state, [&] {
            finish();
            copy(state);
            writer_ = base::start_background_thread([this, progress] { write(progress); });
            return Outcome{};
        });
    }
    void wait() {
        on_rank_0({}, [&] {
            finish();
            return Outcome{};
        });
    }
    Progress resume(const std::vector<NamedTensor>& state) {
        std::optional<checkpoint::Found> found;  // rank 0's
        const Outcome outcome = on_rank_0(state, [&] {
            finish();
            found = folder_.find(state);
            return Outcome{found.has_value(), found ? found->progress : Progress{}};
        });
        if (!outcome.found) return outcome.progress;
        const bool through_host = is_any_out_of_reach(state);
        // Only now, when all know that it was found in time: after an error nothing may change.
        on_rank_0(state, [&] {
            found->copy();
            return Outcome{};
        });
        found.reset();
        if (group_.size() > 1) {
            for (const auto& [name, tensor] : state) broadcast(tensor, through_host);
        }
        return outcome.progress;
    }

private:
    Outcome on_rank_0(const std::vector<NamedTensor>& state, std::function<Outcome()> work) {
        return checkpoint::on_rank_0(group_, timeout_,
                                     {.work = std::move(work),
                                      .device = device_of(state),
                                      .on_shared = [this] { unreported_error_.clear(); }});
    }

    // Collective: whether the group itself cannot move one of them on some rank, as it has no GPU
    // or another one.
    bool is_any_out_of_reach(const std::vector<NamedTensor>& state) {
        const bool mine = std::ranges::any_of(state, [&](const NamedTensor& named) {
            const Device& device = named.tensor.device;
            return device.type != DeviceType::cpu && device != group_.device();
        });
        return group_.all_reduce(mine ? 1 : 0, ReduceOp::max, CallSite{}) == 1;
    }
    void broadcast(const TensorView& tensor, bool through_host) {
        if (tensor.numel() == 0) return;
        if (!through_host || tensor.device.type == DeviceType::cpu) {
            return group_.broadcast(tensor, Root{}, {}, CallSite{}).wait();
        }
        std::vector<std::byte> host(tensor.bytes());
        checkpoint::Staging staging;
        if (group_.rank() == 0) staging.read(tensor, host.data());
        group_.broadcast({host.data(), tensor.shape, tensor.dtype}, Root{}, {}, CallSite{}).wait();
        if (group_.rank() != 0) staging.write(tensor, host.data());
    }

    void write(const Progress& progress) {
        try {
            folder_.write(progress, copy_);
        } catch (const std::exception& exception) {
            error_ = checkpoint::message_of(exception);
        }
    }
    // Waits for the thread; throws what went wrong in it, until all ranks have heard it.
    void finish() {
        if (writer_.joinable()) writer_.join();
        if (!error_.empty()) unreported_error_ = std::exchange(error_, {});
        if (!unreported_error_.empty()) throw CheckpointError(unreported_error_);
    }
    // The memory stays for the next time: the system would have to clear it anew.
    void copy(const std::vector<NamedTensor>& state) {
        copy_ = state;
        memory_.resize(state.size());
        checkpoint::Staging staging;
        for (std::size_t i = 0; i < state.size(); ++i) {
            const TensorView& tensor = state[i].tensor;
            memory_[i].resize(tensor.bytes());
            staging.read(tensor, memory_[i].data());
            copy_[i].tensor = {memory_[i].data(), tensor.shape, tensor.dtype};
        }
    }

    std::filesystem::path dir_;
    ProcessGroup& group_;
    std::chrono::milliseconds timeout_;
    bool agreed_ = false;  // all ranks have a folder's name, or none has
    checkpoint::CheckpointFolder folder_;
    std::vector<NamedTensor> copy_;
    std::vector<std::vector<std::byte>> memory_;  // of copy_
    std::thread writer_;                          // has folder_, copy_ and error_ while it runs
    std::string error_;
    std::string unreported_error_;  // what error_ was, while the ranks have not all heard it
};

CheckpointManager::CheckpointManager(std::filesystem::path dir, ProcessGroup& group,
                                     const CheckpointOptions& options)
    : impl_(std::make_unique<Impl>(dir, group, options)) {}
CheckpointManager::CheckpointManager(CheckpointManager&&) noexcept = default;
CheckpointManager& CheckpointManager::operator=(CheckpointManager&&) noexcept = default;
CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::save(const Progress& progress, const std::vector<NamedTensor>& state) {
    check(progress);
    if (impl_->has_folder()) impl_->save(progress, state);
}

void CheckpointManager::save_async(const Progress& progress,
                                   const std::vector<NamedTensor>& state) {
    check(progress);
    if (impl_->has_folder()) impl_->save_async(progress, state);
}

void CheckpointManager::wait() {
    if (impl_->has_folder()) impl_->wait();
}

Progress CheckpointManager::resume(const std::vector<NamedTensor>& state) {
    return impl_->has_folder() ? impl_->resume(state) : Progress{};
}

int CheckpointManager::finished_epochs(const Progress& progress) const {
    if (progress.samples == 0) return progress.epoch;
    throw UsageError("checkpoint: the newest one in " + dir().string() + " is " +
                     std::to_string(progress.samples) + " samples into epoch " +
                     std::to_string(progress.epoch) +
                     "; use resume() and sampler.set_epoch(progress.epoch, progress.samples)");
}

const std::filesystem::path& CheckpointManager::dir() const noexcept { return impl_->dir(); }

}  // namespace ddp
