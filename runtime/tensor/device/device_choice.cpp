#include "tensor/device/device_choice.hpp"

#include <ddp/error.hpp>

#include <cstddef>
#include <map>

namespace ddp::device {
namespace {

std::string counted(int count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

constexpr const char* share_remedy =
    "a GPU serves one rank (for tests alone, --oversubscribe-gpu lets ranks share)";

}  // namespace

int choose_device(const GpuCandidates& candidates) {
    if (candidates.visible < 1) {
        throw UsageError("local rank " + std::to_string(candidates.local_rank) + " has no GPU: " +
                         candidates.reason + "; backend shm or gloo does without");
    }
    if (candidates.oversubscribed) return candidates.local_rank % candidates.visible;
    if (candidates.local_rank < candidates.visible &&
        candidates.local_world_size <= candidates.visible) {
        return candidates.local_rank;
    }
    if (candidates.visible == 1 && candidates.restricted) return 0;
    throw UsageError(counted(candidates.local_world_size, "rank") + " on this host and " +
                     counted(candidates.visible, "visible GPU") + ": start " +
                     counted(candidates.visible, "rank") +
                     " (--nproc-per-node=gpu), or show each rank its own by " +
                     "CUDA_VISIBLE_DEVICES; " + share_remedy);
}

void require_different_devices(std::span<const std::string> by_rank) {
    std::map<std::string, std::size_t> taken;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
        const auto [first, is_new] = taken.emplace(by_rank[rank], rank);
        if (is_new) continue;
        throw SharedDeviceError(
            "ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
            " have both chosen " + by_rank[rank] +
            ": show each its own by CUDA_VISIBLE_DEVICES, or start fewer ranks; " + share_remedy);
    }
}

}  // namespace ddp::device
