// The rules are those that the CUDA C++ programming guide gives for CUDA_VISIBLE_DEVICES, and what
// PyTorch makes of repeated entries.
#include "launcher/plan/visible_gpus.hpp"

#include "launcher/plan/nvidia_smi.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

namespace ddp::launcher {
namespace {

bool is_uuid(std::string_view entry) {
    return entry.size() > 4 && (entry.starts_with("GPU-") || entry.starts_with("MIG-"));
}

std::string_view trimmed(std::string_view text) {
    const std::size_t start = text.find_first_not_of(" \t");
    if (start == text.npos) return {};
    return text.substr(start, text.find_last_not_of(" \t") + 1 - start);
}

// Like strtoul: what follows the digits is not looked at.
std::optional<std::string> read_entry(std::string_view entry, std::optional<std::size_t> devices) {
    if (is_uuid(entry)) return std::string(entry);
    std::size_t index = 0;
    const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    if (error != std::errc{} || (devices && index >= *devices)) return std::nullopt;
    return std::to_string(index);
}

std::vector<std::string> numbers_below(std::size_t count) {
    std::vector<std::string> all;
    for (std::size_t index = 0; index < count; ++index) all.push_back(std::to_string(index));
    return all;
}

// Its kernel shows the host's GPUs as one device, and the driver's library lies in a folder of its
// own.
bool is_wsl(const GpuPaths& paths) {
    return ::access((paths.devices + "/dxg").c_str(), F_OK) == 0 &&
           ::access((paths.wsl_library + "/libcuda.so.1").c_str(), F_OK) == 0;
}

}  // namespace

std::vector<std::string> parse_visible_devices(std::string_view text,
                                               std::optional<std::size_t> devices) {
    std::vector<std::string> entries;
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        const auto entry = read_entry(trimmed(text.substr(0, comma)), devices);
        // An index after a name, or the reverse, ends the list too.
        if (!entry || (!entries.empty() && is_uuid(*entry) != is_uuid(entries.front()))) break;
        if (std::find(entries.begin(), entries.end(), *entry) != entries.end()) return {};
        entries.push_back(*entry);
        text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return entries;
}

std::size_t count_device_files(const std::string& folder) {
    // The driver's own file: without it there is no use in reading a folder of hundreds.
    if (::access((folder + "/nvidiactl").c_str(), F_OK) != 0) return 0;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
    if (!entries) return 0;
    std::size_t count = 0;
    while (const dirent* entry = ::readdir(entries.get())) {
        constexpr std::string_view start = "nvidia";
        const std::string_view name = entry->d_name;
        if (!name.starts_with(start) || name == start) continue;
        if (name.find_first_not_of("0123456789", start.size()) == name.npos) ++count;
    }
    return count;
}

std::optional<std::size_t> count_gpus(const GpuPaths& paths) {
    const std::size_t files = count_device_files(paths.devices);
    if (files > 0 || !is_wsl(paths)) return files;
    return count_listed_gpus(paths.wsl_library + "/nvidia-smi");
}

std::vector<std::string> visible_gpus(const EnvLookup& environment, const GpuPaths& paths) {
    const auto text = environment("CUDA_VISIBLE_DEVICES");
    if (text && text->empty()) return {};
    const auto devices = count_gpus(paths);
    if (devices == std::size_t{0}) return {};
    return text ? parse_visible_devices(*text, devices) : numbers_below(devices.value_or(0));
}

std::vector<std::string> listed_gpus(const EnvLookup& environment, const GpuPaths& paths) {
    const std::size_t files = count_device_files(paths.devices);
    const auto text = environment("CUDA_VISIBLE_DEVICES");
    if (!text) return numbers_below(files);
    return parse_visible_devices(*text, files > 0 ? std::optional(files) : std::nullopt);
}

std::string gpu_of(const Options& options, std::span<const std::string> gpus, int local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    if (index >= gpus.size()) return {};
    const std::string& gpu = gpus[index];
    const int seen_as = options.program.virtual_local_rank ? 0 : local_rank;
    return "cuda:" + std::to_string(seen_as) + " = " + (is_uuid(gpu) ? gpu : "GPU " + gpu);
}

}  // namespace ddp::launcher
