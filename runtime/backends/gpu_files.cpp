#include "backends/gpu_files.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>

namespace ddp::backends {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool has_wsl_driver(const GpuPlaces& places) {
    return exists(places.devices + "/dxg") &&
           std::ranges::any_of(places.libraries, [](const std::string& folder) {
               return exists(folder + "/libcuda.so.1");
           });
}

// The lowest of nvidia0, nvidia1, ...; empty: none.
std::string first_device_file(const std::string& folder) {
    constexpr std::string_view start = "nvidia";
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
    std::string first;
    while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
        const std::string_view name = entry->d_name;
        if (!name.starts_with(start) || name == start) continue;
        if (name.find_first_not_of("0123456789", start.size()) != name.npos) continue;
        const bool is_lower =
            name.size() < first.size() || (name.size() == first.size() && name < first);
        if (first.empty() || is_lower) first = name;
    }
    return first;
}

}  // namespace

bool has_gpu_driver(const GpuPlaces& places) {
    return exists(places.devices + "/nvidiactl") || has_wsl_driver(places);
}

std::string describe_missing_driver(const GpuPlaces& places) {
    return "no driver: there is no " + places.devices + "/nvidiactl" +
           (exists(places.devices + "/dxg")
                ? ", and " + places.devices + "/dxg without NVIDIA's libcuda.so.1"
                : "");
}

std::string find_request_for_gpus(const char* visible_devices, const GpuPlaces& places) {
    const std::string_view visible = visible_devices != nullptr ? visible_devices : "";
    // Some launchers hide GPUs by a word, such as NoDevFiles.
    if (!visible.empty() && (std::isdigit(static_cast<unsigned char>(visible[0])) != 0 ||
                             visible.starts_with("GPU-") || visible.starts_with("MIG-"))) {
        return "CUDA_VISIBLE_DEVICES is " + std::string(visible);
    }
    if (visible_devices != nullptr) return {};  // it hides what there is
    if (const std::string file = first_device_file(places.devices); !file.empty()) {
        return places.devices + "/" + file + " is there";
    }
    return has_wsl_driver(places) ? places.devices + "/dxg and libcuda.so.1 are there" : "";
}

}  // namespace ddp::backends
