// Processors, memory and limits.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/unique_fd.hpp"
#include "doctor/checks.hpp"
#include "launcher/plan/worker_count.hpp"

namespace ddp::doctor {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes / mib) + " MiB"; }

// The number behind `name` in a file of lines "name 123 ...".
std::optional<std::uint64_t> number_in(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string first;
        std::uint64_t number = 0;
        if (words >> first >> number && first == name) return number;
    }
    return std::nullopt;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    std::uint64_t number = 0;
    if (file >> number) return number;
    return std::nullopt;  // also "max"
}

// This process's cgroup (v2) and those above it, the innermost first.
std::vector<std::filesystem::path> cgroups(const std::string& root) {
    std::ifstream file(root + "/proc/self/cgroup");
    std::vector<std::filesystem::path> folders;
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("0::/")) continue;
        const std::filesystem::path mount = root + "/sys/fs/cgroup";
        std::filesystem::path inside = line.substr(4);
        for (;; inside = inside.parent_path()) {
            folders.push_back(inside.empty() ? mount : mount / inside);
            if (inside.empty()) return folders;
        }
    }
    return folders;
}

std::string one_decimal(double number) {
    std::ostringstream text;
    text.precision(1);
    text << std::fixed << number;
    return text.str();
}

}  // namespace

Findings check_processors(const std::string& root) {
    Findings findings;
    const int usable = launcher::usable_cpus(root);
    const double quota = launcher::cpu_quota(root);
    const long online = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
    std::string says = std::to_string(usable) + " of " + std::to_string(online) + " CPUs usable";
    if (quota > 0) says += "; the cgroup's quota is " + one_decimal(quota);
    findings.push_back({"processors", Level::ok, says});
    if (usable < 2) {
        findings.back().level = Level::warn;
        findings.back().remedy =
            "two ranks share one CPU here: give this shell or container more (taskset, docker run "
            "--cpus, limits.cpu)";
    }
    for (const auto& folder : cgroups(root)) {
        const auto times = number_in(folder / "cpu.stat", "nr_throttled");
        if (!times || *times == 0) continue;
        findings.push_back({"processors", Level::warn,
                            "the quota has stopped this cgroup " + std::to_string(*times) +
                                " times so far, all ranks in it at once",
                            "start no more ranks than the quota has CPUs (--nproc-per-node=cpu), "
                            "or raise the quota"});
        break;
    }
    return findings;
}

Findings check_memory(const std::string& root) {
    const auto kib = number_in(root + "/proc/meminfo", "MemAvailable:");
    if (!kib) return {{"memory", Level::note, "/proc/meminfo does not say what is available"}};
    std::uint64_t available = *kib * 1024;
    std::string says = in_mib(available) + " available";
    for (const auto& folder : cgroups(root)) {
        const auto limit = number_in(folder / "memory.max");
        const auto used = number_in(folder / "memory.current");
        if (!limit || !used) continue;
        const std::uint64_t left = *limit > *used ? *limit - *used : 0;
        if (left >= available) continue;
        available = left;
        says = in_mib(left) + " left of the " + in_mib(*limit) + " that the cgroup may use";
    }
    constexpr std::uint64_t little = 512 * mib;
    if (available >= little) return {{"memory", Level::ok, says}};
    return {{"memory", Level::warn, says,
             "the kernel kills a rank when this is used up; free some, or raise the limit (docker "
             "run --memory, limits.memory)"}};
}

Findings check_shared_memory(const std::string& root) {
    Findings findings;
    const base::UniqueFd memory(::memfd_create("ddp-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const int trouble = !memory                                             ? errno
                        : ::posix_fallocate(memory.get(), 0, mib) == ENOSPC ? ENOSPC
                                                                            : 0;
    if (trouble == 0) {
        findings.push_back({"shared memory", Level::ok, "memory between ranks can be had (memfd)"});
    } else {
        findings.push_back({"shared memory", Level::fail,
                            std::string("memory between ranks (memfd_create) cannot be had: ") +
                                std::strerror(trouble),
                            "backend shm needs it: allow memfd_create in the seccomp filter, and "
                            "raise the memory limit"});
    }
    struct statvfs usage {};
    constexpr std::uint64_t containers_usual = 64 * mib;
    if (::statvfs((root + "/dev/shm").c_str(), &usage) != 0) {
        findings.push_back({"shared memory", Level::warn, "there is no /dev/shm",
                            "ddp needs none, but NCCL and PyTorch's DataLoader do: mount a tmpfs "
                            "there"});
    } else if (const auto size = std::uint64_t{usage.f_blocks} * usage.f_frsize;
               size <= containers_usual) {
        findings.push_back({"shared memory", Level::warn,
                            "/dev/shm has " + in_mib(size) + " in all",
                            "ddp needs none, but NCCL and PyTorch's DataLoader fail with so "
                            "little: docker run --shm-size=1g, or an emptyDir of medium Memory"});
    }
    return findings;
}

Findings check_limits() {
    const auto most = [](auto resource) {
        rlimit limit{};
        return ::getrlimit(resource, &limit) == 0 ? limit.rlim_max : RLIM_INFINITY;
    };
    Findings findings;
    // A worker takes four of the agent's descriptors, and the agent some of its own.
    const rlim_t files = most(RLIMIT_NOFILE);
    constexpr rlim_t few_files = 256;
    if (files < few_files) {
        findings.push_back({"limits", Level::warn,
                            "no more than " + std::to_string(files) + " open files",
                            "jobs of many workers and files need more: ulimit -Hn 4096, or "
                            "LimitNOFILE"});
    }
    const rlim_t processes = most(RLIMIT_NPROC);
    constexpr rlim_t few_processes = 128;
    if (processes != RLIM_INFINITY && processes < few_processes) {
        findings.push_back(
            {"limits", Level::warn,
             "no more than " + std::to_string(processes) + " processes and threads of this user",
             "ranks and their threads need more: ulimit -Hu 4096, or TasksMax"});
    }
    const bool has_rdma = std::filesystem::exists("/dev/infiniband");
    if (has_rdma && most(RLIMIT_MEMLOCK) != RLIM_INFINITY) {
        findings.push_back({"limits", Level::warn, "locked memory is limited, and there is RDMA",
                            "RDMA cannot register buffers beyond the limit: ulimit -l unlimited, "
                            "docker run --ulimit memlock=-1"});
    }
    if (findings.empty()) {
        const std::string count = files == RLIM_INFINITY ? "any number of" : std::to_string(files);
        findings.push_back({"limits", Level::ok, count + " open files may be had"});
    }
    return findings;
}

}  // namespace ddp::doctor
