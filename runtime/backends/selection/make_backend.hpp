// The one place that chooses what moves a group's bytes. All ranks agree through the store: each
// tries what is wanted, publishes how that went, and reads what the others published. Invariant:
// all take the same decision, and all report the same refusals.
#pragma once

#include "backends/backend.hpp"
#include "backends/device_backend.hpp"
#include "base/deadline.hpp"
#include "contract/launch_recorder.hpp"

#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ddp::backends {

struct GroupContext {
    const WorkerEnv& me;
    ddp::Store* store;  // empty of other groups' keys; not used in a world of one
    ddp::Backend wanted;
    // The control region's abort word, or null.
    const std::atomic<std::uint32_t>* agent_abort;
    // By rank in the group: its rank in the job, which errors and the abort word name. Empty: the
    // same.
    std::span<const int> job_ranks = {};
    bool among_hosts = false;  // part of a group of several hosts
    bool cpu_only = false;     // `automatic` does not look for GPUs
    // Of the GPU half of the group that it is split from; null: nothing.
    std::shared_ptr<SharedResources> shared = nullptr;
    // For what the GPU half launches.
    std::function<std::shared_ptr<contract::LaunchRecorder>()> make_recorder = {};

    int job_rank(int rank) const {
        return job_ranks.empty() ? rank : job_ranks[static_cast<std::size_t>(rank)];
    }
};

// What moves a group's bytes: a tensor's device chooses.
struct Halves {
    std::shared_ptr<Backend> cpu;
    std::unique_ptr<DeviceBackend> device;  // null: CPU memory only
    std::string no_device;                  // why; empty when there is nothing to say
};

// For CPU memory `automatic` is shm on one host, hierarchical between hosts of several ranks, else
// gloo, and likewise beside `nccl`.
// For GPUs it is NCCL where all ranks can have it; `nccl` insists. Collective. Throws UsageError
// that names each rank, host and reason that stand in the way (the same on every rank),
// TimeoutError that names the ranks that did not come, and as nccl::make_backend.
Halves make_backends(const GroupContext& group, const base::Deadline& deadline);

}  // namespace ddp::backends
