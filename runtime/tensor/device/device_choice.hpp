// Which GPU a rank takes. Pure: what is asked of the driver and the environment is handed in.
#pragma once

#include <ddp/error.hpp>

#include <span>
#include <string>

namespace ddp::device {

// A local rank, and the GPUs that it may choose from.
struct GpuCandidates {
    int local_rank = 0;
    int local_world_size = 1;
    int visible = 0;          // GPUs that this process sees
    std::string reason = {};  // why it sees none (Probe::reason)
    // CUDA_VISIBLE_DEVICES is set: one visible GPU may then be this rank's own.
    bool restricted = false;
    bool oversubscribed = false;  // DDP_OVERSUBSCRIBE_GPU=1: ranks share GPUs, for tests
};

// LOCAL_RANK where each rank of the host finds a GPU of its own; 0 where the only visible one was
// picked for this rank. Throws UsageError with the remedy: no GPU, or more ranks than GPUs, on all
// ranks of the host alike.
int choose_device(const GpuCandidates& candidates);

// Two ranks have chosen the same GPU.
class SharedDeviceError : public UsageError {
public:
    using UsageError::UsageError;
};

// For the choices of all ranks of a group, as DeviceApi::describe names them (with the GPU's
// identity): throws SharedDeviceError when two ranks have chosen the same GPU.
void require_different_devices(std::span<const std::string> by_rank);

}  // namespace ddp::device
