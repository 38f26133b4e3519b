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
#include <optional>
#include <sstream>

#include "base/process/cgroup.hpp"
#include "base/unique_fd.hpp"
#include "doctor/checks.hpp"
#include "doctor/numbers.hpp"
#include "launcher/plan/worker_count.hpp"

namespace ddp::doctor {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes / mib) + " MiB"; }

// Of both versions, those above this process's, too.
base::CgroupFolders cgroups(const std::string& root, const char* controller) {
    base::CgroupFolders all;
    for (base::CgroupFolders& folders : base::cgroups_of("self", controller, root)) {
        all.insert(all.end(), folders.begin(), folders.end());
    }
    return all;
}

// What a cgroup may still take; files in memory go when it is wanted. Nothing: as much as it likes.
struct Room {
    std::uint64_t limit, left;
};
std::optional<Room> room_in(const std::string& folder) {
    const bool is_second = std::filesystem::exists(folder + "/memory.max");
    const auto limit = number_in(folder + (is_second ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto used =
        number_in(folder + (is_second ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!limit || !used) return std::nullopt;
    const std::string prefix = is_second ? "" : "total_";
    std::uint64_t files = 0;
    for (const char* kind : {"inactive_file", "active_file"}) {
        files += number_in(folder + "/memory.stat", prefix + kind).value_or(0);
    }
    const std::uint64_t kept = *used - std::min(files, *used);
    return Room{*limit, *limit - std::min(kept, *limit)};
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
    for (const std::string& folder : cgroups(root, "cpu")) {
        const auto times = number_in(folder + "/cpu.stat", "nr_throttled");
        if (!times || *times == 0) continue;
        findings.push_back({"processors", Level::warn,
                            "the quota has stopped this cgroup " + std::to_string(*times) +
                                " times since it was made, all ranks in it at once",
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
    for (const std::string& folder : cgroups(root, "memory")) {
        const auto room = room_in(folder);
        if (!room || room->left >= available) continue;
        available = room->left;
        says =
            in_mib(room->left) + " left of the " + in_mib(room->limit) + " that the cgroup may use";
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
    const int trouble = !memory ? errno : ::posix_fallocate(memory.get(), 0, mib);
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
    } else {
        const std::uint64_t size = std::uint64_t{usage.f_blocks} * usage.f_frsize;
        const std::uint64_t free = std::uint64_t{usage.f_bavail} * usage.f_frsize;
        if (size <= containers_usual || free < containers_usual / 2) {
            findings.push_back(
                {"shared memory", Level::warn,
                 "/dev/shm has " + in_mib(size) + " in all, " + in_mib(free) + " of them free",
                 "ddp needs none, but NCCL and PyTorch's DataLoader fail with so "
                 "little: docker run --shm-size=1g, an emptyDir of medium Memory, "
                 "or remove what others have left there"});
        }
    }
    return findings;
}

Findings check_limits(const std::string& root) {
    struct Limit {
        rlim_t now, most;  // the launcher raises that of open files as far as it may
    };
    const auto limit_of = [](auto resource) {
        rlimit limit{};
        if (::getrlimit(resource, &limit) != 0) return Limit{RLIM_INFINITY, RLIM_INFINITY};
        return Limit{limit.rlim_cur, limit.rlim_max};
    };
    Findings findings;
    const auto warn = [&](const std::string& says, const std::string& remedy) {
        findings.push_back({"limits", Level::warn, says, remedy});
    };
    // 20 of the agent's, and 7 a worker.
    const rlim_t files = limit_of(RLIMIT_NOFILE).most;
    constexpr rlim_t few_files = 256;
    if (files < few_files) {
        warn("no more than " + std::to_string(files) + " open files",
             "jobs of many workers need more: docker run --ulimit nofile=65536, LimitNOFILE, or "
             "/etc/security/limits.conf");
    }
    constexpr std::uint64_t few_processes = 128;
    const rlim_t processes = limit_of(RLIMIT_NPROC).now;
    if (::geteuid() != 0 && processes < few_processes) {
        warn("no more than " + std::to_string(processes) + " processes and threads of this user",
             "ranks and their threads need more: ulimit -u 4096, or /etc/security/limits.conf");
    }
    for (const std::string& folder : cgroups(root, "pids")) {
        const auto most = number_in(folder + "/pids.max");
        const auto used = number_in(folder + "/pids.current");
        if (!most || !used || *most >= *used + few_processes) continue;
        warn("the cgroup has " + std::to_string(*used) + " processes and threads of at most " +
                 std::to_string(*most),
             "ranks and their threads need more: docker run --pids-limit, TasksMax");
        break;
    }
    const rlim_t largest = limit_of(RLIMIT_FSIZE).now;
    if (largest != RLIM_INFINITY) {
        warn("files may have no more than " + std::to_string(largest) + " bytes",
             "checkpoints and memory between ranks are files, too: ulimit -f unlimited");
    }
    const bool has_rdma = std::filesystem::exists(root + "/dev/infiniband");
    if (has_rdma && limit_of(RLIMIT_MEMLOCK).now != RLIM_INFINITY) {
        warn("locked memory is limited, and there is RDMA",
             "RDMA cannot register buffers beyond the limit: docker run --ulimit memlock=-1, or "
             "LimitMEMLOCK=infinity");
    }
    if (findings.empty()) {
        const std::string count = files == RLIM_INFINITY ? "any number of" : std::to_string(files);
        findings.push_back({"limits", Level::ok, count + " open files may be had"});
    }
    return findings;
}

}  // namespace ddp::doctor
