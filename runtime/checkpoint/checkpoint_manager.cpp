// Rank 0 does the work with the file; the others hear how it went before they see any data, so that
// all ranks go on or throw together.
#include <ddp/checkpoint.hpp>
#include <ddp/error.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_file.hpp"

namespace ddp {

namespace {

// Runs `work` on rank 0. Every rank returns what it returned, or throws CheckpointError with the
// message of what it threw.
std::int64_t on_rank_0(ProcessGroup& group, const std::function<std::int64_t()>& work) {
    std::int64_t result = 0;
    std::string error;
    if (group.rank() == 0) {
        try {
            result = work();
        } catch (const std::exception& exception) {
            error = exception.what();
            if (error.empty()) error = "checkpoint: failed without a message";
        }
    }
    std::array<std::int64_t, 2> outcome{result, static_cast<std::int64_t>(error.size())};
    group.broadcast(outcome).wait();
    if (outcome[1] == 0) return outcome[0];
    std::vector<std::uint8_t> text(error.begin(), error.end());
    text.resize(static_cast<std::size_t>(outcome[1]));
    group.broadcast(text).wait();
    throw CheckpointError(std::string(text.begin(), text.end()));
}

}  // namespace

CheckpointManager::CheckpointManager(std::filesystem::path dir, ProcessGroup& group)
    : dir_(std::move(dir)), group_(&group) {}

void CheckpointManager::save(int epoch, const std::vector<NamedTensor>& state) {
    if (epoch < 0) {
        throw UsageError("checkpoint: epoch " + std::to_string(epoch) +
                         " is negative; pass the number of finished epochs");
    }
    if (dir_.empty()) return;
    on_rank_0(*group_, [&] {
        checkpoint::write_checkpoint(dir_, epoch, state);
        return std::int64_t{0};
    });
}

int CheckpointManager::load_latest(const std::vector<NamedTensor>& state) {
    if (dir_.empty()) return 0;
    constexpr std::int64_t none = -1;
    const std::int64_t epoch = on_rank_0(*group_, [&] {
        const auto found = checkpoint::read_checkpoint(dir_, state);
        return found ? std::int64_t{*found} : none;
    });
    if (epoch == none) return 0;
    for (const auto& [name, tensor] : state) {
        if (tensor.numel() > 0) group_->broadcast(tensor).wait();
    }
    return static_cast<int>(epoch);
}

}  // namespace ddp
