// Which GPUs this job may see, by CUDA's rules and without CUDA: its driver is never opened, so no
// context is made and no broken driver can stop a start.
#pragma once

#include "launcher/options/options.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

// The entries of CUDA_VISIBLE_DEVICES that CUDA takes: "1", "GPU-<uuid>", "MIG-<uuid>". It stops at
// the first that is none: -1, or an index that is not below the number of devices, where that is
// known. An entry that comes twice makes the whole list void.
std::vector<std::string> parse_visible_devices(std::string_view text,
                                               std::optional<std::size_t> devices);

// Files nvidia0, nvidia1, ... in a folder: /dev.
std::size_t count_device_files(const std::string& folder);

// Where a host shows its GPUs; a test has folders of its own.
struct GpuPaths {
    std::string devices = "/dev";
    std::string wsl_library = "/usr/lib/wsl/lib";  // libcuda.so.1 and nvidia-smi of WSL2
};

// How many GPUs there are: device files; under WSL2, which has none, as many as nvidia-smi lists.
// Nothing when that gives no answer.
std::optional<std::size_t> count_gpus(const GpuPaths& paths);

// Of this host: the variable where it is set, else all devices. None where there is no device,
// whatever the variable says. May run nvidia-smi.
std::vector<std::string> visible_gpus(const EnvLookup& environment, const GpuPaths& paths = {});

// The same from what can be read at once: where no device file is, the variable is believed.
std::vector<std::string> listed_gpus(const EnvLookup& environment, const GpuPaths& paths = {});

// "cuda:0 = GPU 1": what a local rank finds at its index. Empty when there is none.
std::string gpu_of(const Options& options, std::span<const std::string> gpus, int local_rank);

}  // namespace ddp::launcher
