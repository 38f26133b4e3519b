#include "backends/selection/gpu_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace ddp::backends {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool has_wsl_library(const GpuSearchPaths& paths) {
    return std::ranges::any_of(paths.libraries, [](const std::string& folder) {
        return exists(folder + "/libcuda.so.1");
    });
}

// The lowest of nvidia0, nvidia1, ...; empty: none. By names, and few where the usual ones are
// missing: a name that is not in /dev takes long to be looked for, and /dev long to be read.
std::string first_device_file(const std::string& folder) {
    constexpr int most_gpus = 16;  // of a host
    const int last = exists(folder + "/nvidiactl") ? most_gpus : 1;
    for (int index = 0; index < last; ++index) {
        std::string file = folder + "/nvidia" + std::to_string(index);
        if (exists(file)) return file;
    }
    return {};
}

}  // namespace

std::string describe_missing_driver(const GpuSearchPaths& paths) {
    if (exists(paths.devices + "/nvidiactl")) return {};
    std::string why = "no driver: there is no " + paths.devices + "/nvidiactl";
    if (!exists(paths.devices + "/dxg")) return why;
    if (has_wsl_library(paths)) return {};
    return why + ", and " + paths.devices + "/dxg without NVIDIA's libcuda.so.1";
}

std::string find_request_for_gpus(const char* visible_devices, const GpuSearchPaths& paths) {
    const std::string_view visible = visible_devices != nullptr ? visible_devices : "";
    // Some launchers hide GPUs by a word, such as NoDevFiles.
    if (!visible.empty() && (std::isdigit(static_cast<unsigned char>(visible[0])) != 0 ||
                             visible.starts_with("GPU-") || visible.starts_with("MIG-"))) {
        return "CUDA_VISIBLE_DEVICES is " + std::string(visible);
    }
    if (visible_devices != nullptr) return {};  // it hides what there is
    if (const std::string file = first_device_file(paths.devices); !file.empty()) {
        return file + " is there";
    }
    const bool is_wsl = exists(paths.devices + "/dxg") && has_wsl_library(paths);
    return is_wsl ? paths.devices + "/dxg and libcuda.so.1 are there" : "";
}

}  // namespace ddp::backends
