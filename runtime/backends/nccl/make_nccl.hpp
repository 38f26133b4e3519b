// How to get the NCCL backend. Two sources implement it: make_nccl.cpp, or nccl_absent.cpp in a
// build without CUDA; nothing else of ddp knows which. Invariant: all ranks of a group get it, or
// none.
#pragma once

#include "backends/backend.hpp"
#include "backends/device_backend.hpp"
#include "base/deadline.hpp"
#include "contract/launch_recorder.hpp"

#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddp::nccl {

// What this rank can have, as it tells the others.
struct GpuSupport {
    enum class State : std::uint8_t {
        none,     // no GPU to be seen: nothing to speak of unless nccl was asked for
        refused,  // there is one, but
        usable,
    };
    State state = State::none;
    std::string reason;  // why it is not usable, in one line
    int device = 0;      // of this rank
};

// Asks for devices, chooses this rank's and opens libnccl, as far as it comes. Costs nothing on a
// host without GPUs.
GpuSupport find_gpu_support(const WorkerEnv& me);

struct Group {
    int rank = 0;
    int ranks = 1;
    ddp::Store* store = nullptr;  // not used in a world of one
    int device = 0;
    std::span<const int> job_ranks = {};     // by rank in the group; empty: the same
    std::shared_ptr<backends::Backend> cpu;  // the group's other half
    // Of the group that it is split from; null: resources of its own.
    std::shared_ptr<backends::SharedResources> shared = nullptr;
    std::shared_ptr<contract::LaunchRecorder> recorder = nullptr;  // null: nothing is recorded
};

// Collective, all ranks being usable: connects them, and makes the device the calling thread's
// current one. Throws BackendError or TimeoutError, the same text on all ranks; PeerError when one
// dies meanwhile.
std::unique_ptr<backends::DeviceBackend> make_backend(const Group& group,
                                                      const base::Deadline& deadline);

}  // namespace ddp::nccl
