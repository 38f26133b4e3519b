// Whether a group gets a half for GPUs beside the one for CPU memory: only when all of its ranks
// can have it. Each rank has found out for itself (nccl::find_gpu_support) and told the others with
// its request; only where some have a GPU and others do not, reasons go through the store.
// Invariant: all ranks get a GPU half, or none does.
#pragma once

#include "backends/nccl/make_nccl.hpp"
#include "backends/selection/make_backend.hpp"

#include <memory>
#include <span>
#include <string>

namespace ddp::backends {

// Whether GPUs come into it at all.
bool may_use_gpus(const GroupContext& group);

struct DeviceHalf {
    std::unique_ptr<DeviceBackend> backend;  // null: CPU memory only
    std::string refusal;                     // why; may be empty
};

// `all`: of each rank. Collective. Throws UsageError on all ranks when nccl is wanted and one of
// them cannot have it, and as nccl::make_backend. Otherwise rank 0 warns, and each host is told
// whose GPU stays unused, or where GPUs were asked for and there are none.
DeviceHalf make_device_half(const GroupContext& group, const nccl::GpuSupport& mine,
                            std::span<const nccl::GpuSupport::State> all,
                            std::shared_ptr<Backend> cpu, const base::Deadline& deadline);

}  // namespace ddp::backends
