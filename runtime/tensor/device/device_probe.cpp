#include "tensor/device/device_probe.hpp"

#include <array>

namespace ddp::device {
namespace {

// As in cudaError.
constexpr int insufficient_driver = 35;
constexpr int no_device = 100;

struct Reason {
    int error;
    const char* text;
};
constexpr std::array reasons{
    Reason{3,
           "the driver does not initialise; a process that has used CUDA and then forked cannot "
           "use it in the child"},
    Reason{34, "libcuda.so.1 is the toolkit's stub; the driver's own must come first on the path"},
    Reason{46, "the GPU is busy: another process has it for itself (nvidia-smi -q -d COMPUTE)"},
    Reason{no_device,
           "the driver shows no GPU: CUDA_VISIBLE_DEVICES hides all, the container was given "
           "none, or MIG is on and has no instance"},
    Reason{304, "the system refuses the driver's files: may this user open /dev/nvidia*?"},
    Reason{802,
           "the GPUs are not ready: a daemon of the driver has not started (nvidia-fabricmanager "
           "on hosts with NVSwitch)"},
    Reason{803,
           "the driver's library and kernel module are of different versions: reload the module "
           "or restart the host"},
    Reason{804,
           "the library path has CUDA's forward-compatibility package, which this GPU does not "
           "support: take it out of the path"},
    Reason{805, "the MPS server does not answer: is nvidia-cuda-mps-control running?"},
};

// 12020 -> "12.2"
std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string reason_of(const RuntimeAnswer& answer) {
    if (answer.error == 0 && answer.devices > 0) return {};
    const int error = answer.error == 0 ? no_device : answer.error;
    if (error == insufficient_driver) {
        if (answer.driver == 0) return "no driver: libcuda.so.1 is missing or does not load";
        return "the driver supports CUDA " + version_text(answer.driver) + ", this build needs " +
               version_text(answer.runtime) + ": update the driver";
    }
    for (const Reason& reason : reasons) {
        if (reason.error == error) return reason.text;
    }
    return "the driver answers with error " + std::to_string(error) +
           (answer.words.empty() ? "" : ", " + answer.words);
}

}  // namespace

Probe probe_of(const RuntimeAnswer& answer) {
    std::string reason = reason_of(answer);
    const int devices = reason.empty() ? answer.devices : 0;
    return {.devices = devices, .reason = std::move(reason)};
}

}  // namespace ddp::device
