// Stands in for the rest of this folder in a build without CUDA.
#include "backends/nccl/make_nccl.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

namespace ddp::nccl {

GpuSupport find_gpu_support(const WorkerEnv&) {
    return {GpuSupport::State::none,
            "ddp " + std::string(version()) +
                " is built without it (there was no CUDA toolkit with nccl.h, or DDP_WITH_CUDA "
                "was OFF)",
            0};
}

std::unique_ptr<backends::DeviceBackend> make_backend(const Group&, const base::Deadline&) {
    throw UsageError("nccl: " + find_gpu_support({}).reason);
}

}  // namespace ddp::nccl
