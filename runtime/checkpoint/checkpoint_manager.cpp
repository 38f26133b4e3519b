// Rank 0 does the work with the folder; the others hear how it went before they see any data, so
// that all ranks go on or throw together.
#include <ddp/checkpoint.hpp>
#include <ddp/error.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/background_thread.hpp"
#include "base/log.hpp"
#include "checkpoint/checkpoint_folder.hpp"

namespace ddp {

namespace {

// What rank 0 tells the others; `found` is used when it has read a checkpoint.
struct Outcome {
    bool found = false;
    Progress progress;
};

std::string message_of(const std::exception& exception) {
    const std::string message = exception.what();
    return message.empty() ? "checkpoint: failed without a message" : message;
}

// Runs `work` on rank 0. Every rank returns what it returned, or throws CheckpointError with the
// message of what it threw.
Outcome on_rank_0(ProcessGroup& group, const std::function<Outcome()>& work) {
    Outcome outcome;
    std::string error;
    if (group.rank() == 0) {
        try {
            outcome = work();
        } catch (const std::exception& exception) {
            error = message_of(exception);
        }
    }
    std::array<std::int64_t, 5> numbers{
        static_cast<std::int64_t>(error.size()), outcome.found ? 1 : 0, outcome.progress.epoch,
        static_cast<std::int64_t>(outcome.progress.samples), outcome.progress.step};
    group.broadcast(numbers).wait();
    if (numbers[0] == 0) {
        return {numbers[1] == 1,
                {.epoch = static_cast<int>(numbers[2]),
                 .samples = static_cast<std::size_t>(numbers[3]),
                 .step = numbers[4]}};
    }
    std::vector<std::uint8_t> text(error.begin(), error.end());
    text.resize(static_cast<std::size_t>(numbers[0]));
    group.broadcast(text).wait();
    throw CheckpointError(std::string(text.begin(), text.end()));
}

void check(const Progress& progress) {
    if (progress.epoch >= 0 && progress.step >= 0) return;
    throw UsageError("checkpoint: epoch " + std::to_string(progress.epoch) + ", step " +
                     std::to_string(progress.step) +
                     ": pass the number of finished ones, which is not negative");
}

}  // namespace

class CheckpointManager::Impl {
public:
    Impl(const std::filesystem::path& dir, ProcessGroup& group, const CheckpointOptions& options)
        : dir_(dir), group_(group), folder_(checkpoint::system_files(), dir, options.keep_last) {
        if (options.keep_last > 0) return;
        throw UsageError("checkpoint: keep_last is 0; keep at least 1");
    }
    ~Impl() {
        if (writer_.joinable()) writer_.join();
        if (!error_.empty()) base::log_error("checkpoint", error_);
    }

    const std::filesystem::path& dir() const noexcept { return dir_; }

    void save(const Progress& progress, const std::vector<NamedTensor>& state) {
        on_rank_0(group_, [&] {
            finish();
            folder_.write(progress, state);
            return Outcome{};
        });
    }
    void save_async(const Progress& progress, const std::vector<NamedTensor>& state) {
        on_rank_0(group_, [&] {
            finish();
            copy(state);
            writer_ = base::start_background_thread([this, progress] { write(progress); });
            return Outcome{};
        });
    }
    void wait() {
        on_rank_0(group_, [&] {
            finish();
            return Outcome{};
        });
    }
    Progress resume(const std::vector<NamedTensor>& state) {
        const Outcome outcome = on_rank_0(group_, [&] {
            finish();
            const auto found = folder_.read(state);
            return Outcome{found.has_value(), found.value_or(Progress{})};
        });
        if (!outcome.found) return {};
        for (const auto& [name, tensor] : state) {
            if (tensor.numel() > 0) group_.broadcast(tensor).wait();
        }
        return outcome.progress;
    }

private:
    void write(const Progress& progress) {
        try {
            folder_.write(progress, copy_);
        } catch (const std::exception& exception) {
            error_ = message_of(exception);
        }
    }
    // Waits for the thread; throws what went wrong in it, once.
    void finish() {
        if (writer_.joinable()) writer_.join();
        if (!error_.empty()) throw CheckpointError(std::exchange(error_, {}));
    }
    // The memory stays for the next time: the system would have to clear it anew.
    void copy(const std::vector<NamedTensor>& state) {
        copy_ = state;
        memory_.resize(state.size());
        for (std::size_t i = 0; i < state.size(); ++i) {
            const TensorView& tensor = state[i].tensor;
            if (tensor.device.type != DeviceType::cpu) continue;  // the writer refuses it by name
            const std::span bytes{static_cast<const std::byte*>(tensor.data), tensor.bytes()};
            memory_[i].assign(bytes.begin(), bytes.end());
            copy_[i].tensor.data = memory_[i].data();
        }
    }

    std::filesystem::path dir_;
    ProcessGroup& group_;
    checkpoint::CheckpointFolder folder_;
    std::vector<NamedTensor> copy_;
    std::vector<std::vector<std::byte>> memory_;  // of copy_
    std::thread writer_;                          // has folder_, copy_ and error_ while it runs
    std::string error_;
};

CheckpointManager::CheckpointManager(std::filesystem::path dir, ProcessGroup& group,
                                     const CheckpointOptions& options)
    : impl_(std::make_unique<Impl>(dir, group, options)) {}
CheckpointManager::CheckpointManager(CheckpointManager&&) noexcept = default;
CheckpointManager& CheckpointManager::operator=(CheckpointManager&&) noexcept = default;
CheckpointManager::~CheckpointManager() = default;

void CheckpointManager::save(const Progress& progress, const std::vector<NamedTensor>& state) {
    check(progress);
    if (!dir().empty()) impl_->save(progress, state);
}

void CheckpointManager::save_async(const Progress& progress,
                                   const std::vector<NamedTensor>& state) {
    check(progress);
    if (!dir().empty()) impl_->save_async(progress, state);
}

void CheckpointManager::wait() {
    if (!dir().empty()) impl_->wait();
}

Progress CheckpointManager::resume(const std::vector<NamedTensor>& state) {
    return dir().empty() ? Progress{} : impl_->resume(state);
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
