#include "backends/selection/device_half.hpp"

#include "backends/selection/gpu_files.hpp"
#include "base/log.hpp"
#include "base/net/socket.hpp"
#include "tensor/device/device_choice.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace ddp::backends {
namespace {

using State = nccl::GpuSupport::State;

const std::string reason_prefix = "backend/gpu/";

// "rank 1 on host b: no driver"; the ranks that could are left out.
std::string exchange_reasons(const GroupContext& group, const nccl::GpuSupport& mine,
                             std::span<const State> all, const base::Deadline& deadline) {
    const std::string own = "on host " + base::host_name() + ": " + mine.reason;
    StoreValues reasons{own};
    if (group.me.world_size > 1) {
        StoreKeys keys;
        for (int rank = 0; rank < group.me.world_size; ++rank) {
            keys.push_back(reason_prefix + std::to_string(rank));
        }
        group.store->set(keys[static_cast<std::size_t>(group.me.rank)], own);
        reasons = group.store->multi_get(keys, deadline.left());
    }
    std::string list;
    for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
        if (all[rank] == State::usable) continue;
        list += (list.empty() ? "rank " : "; rank ") + std::to_string(rank) + " " + reasons[rank];
    }
    return list;
}

// Where somebody has asked for GPUs, in whatever way, and this rank sees none. Once a process: its
// further groups are like the first.
void tell_of_missing_gpu(const std::string& why) {
    static std::atomic<bool> told = false;
    const std::string request = find_request_for_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
    if (request.empty() || told.exchange(true)) return;
    base::log_warn("backends", "CPU memory only on host " + base::host_name() + ", although " +
                                   request + ": " + why);
}

// On one rank a host, and not where rank 0 has warned already.
void tell_of_unused_gpu(const GroupContext& group, const nccl::GpuSupport& mine,
                        const std::string& why) {
    if (group.me.local_rank != 0) return;
    if (mine.state == State::none) return tell_of_missing_gpu(why);
    base::log_info("backends", "a GPU of host " + base::host_name() + " stays unused: " + why);
}

}  // namespace

bool may_use_gpus(const GroupContext& group) {
    switch (group.wanted) {
        case ddp::Backend::automatic:
            return !group.cpu_only;
        case ddp::Backend::nccl:
            return true;
        case ddp::Backend::shm:
        case ddp::Backend::gloo:
        case ddp::Backend::hierarchical:
            return false;
    }
    return false;
}

DeviceHalf make_device_half(const GroupContext& group, const nccl::GpuSupport& mine,
                            std::span<const State> all, std::shared_ptr<Backend> cpu,
                            const base::Deadline& deadline) {
    if (!may_use_gpus(group)) return {};
    const auto usable = std::count(all.begin(), all.end(), State::usable);
    const bool is_wanted = group.wanted == ddp::Backend::nccl;
    if (usable == group.me.world_size) {
        try {
            return {nccl::make_backend(
                        {.rank = group.me.rank,
                         .ranks = group.me.world_size,
                         .store = group.store,
                         .device = mine.device,
                         .job_ranks = group.job_ranks,
                         .cpu = std::move(cpu),
                         .shared = group.shared,
                         .recorder = group.make_recorder ? group.make_recorder() : nullptr},
                        deadline),
                    {}};
        } catch (const device::SharedDeviceError& error) {  // all ranks find it
            if (is_wanted) throw;
            if (group.me.rank == 0) {
                base::log_warn("backends",
                               std::string("CPU memory only, no GPUs: ") + error.what());
            }
            return {nullptr, error.what()};
        }
    }
    if (usable == 0 && !is_wanted) {
        tell_of_unused_gpu(group, mine, mine.reason);
        return {nullptr, mine.reason};
    }
    const std::string reasons = exchange_reasons(group, mine, all, deadline);
    if (is_wanted) {
        throw UsageError("init_process_group: backend nccl cannot be had: " + reasons);
    }
    const std::string text = "not every rank can use one: " + reasons;
    if (group.me.rank == 0) {
        base::log_warn("backends", "CPU memory only, no GPUs: " + text);
    } else {
        tell_of_unused_gpu(group, mine, text);
    }
    return {nullptr, text};
}

}  // namespace ddp::backends
