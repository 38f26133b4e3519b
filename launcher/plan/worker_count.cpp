// A cgroup's quota binds all below it, so every level from ours up to the mount is looked at.
// Inside a container the path may be one of the host's: levels that are not there do not count.
#include "launcher/plan/worker_count.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace ddp::launcher {
namespace {

std::string read_small_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    ::close(fd);
    return got > 0 ? std::string(bytes.data(), static_cast<std::size_t>(got)) : std::string();
}

// "max" and -1 are no numbers here: no limit.
std::optional<double> read_number(std::string_view text) {
    long long number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number <= 0) return std::nullopt;
    return static_cast<double>(number);
}

double ratio(std::string_view quota, std::string_view period) {
    const auto numerator = read_number(quota);
    const auto denominator = read_number(period);
    return numerator && denominator ? *numerator / *denominator : 0;
}

double quota_v2(const std::string& folder) {
    const std::string text = read_small_file(folder + "/cpu.max");
    const std::size_t blank = text.find(' ');
    return blank == text.npos ? 0 : ratio(text, std::string_view(text).substr(blank + 1));
}

double quota_v1(const std::string& folder) {
    const std::string quota = read_small_file(folder + "/cpu.cfs_quota_us");
    return quota.empty() ? 0 : ratio(quota, read_small_file(folder + "/cpu.cfs_period_us"));
}

double smallest_upwards(const std::string& mount, std::string path,
                        double (*quota_at)(const std::string&)) {
    double smallest = 0;
    for (;;) {
        const double quota = quota_at(mount + path);
        if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
        const std::size_t slash = path.rfind('/');
        if (path.empty() || slash == path.npos) return smallest;
        path.resize(slash);
    }
}

bool names_cpu(std::string_view controllers) {
    while (!controllers.empty()) {
        const std::size_t comma = std::min(controllers.find(','), controllers.size());
        if (controllers.substr(0, comma) == "cpu") return true;
        controllers.remove_prefix(std::min(comma + 1, controllers.size()));
    }
    return false;
}

int cpus_by_affinity() {
    // The kernel refuses a set that is too small for its number of CPUs.
    for (std::size_t bytes = sizeof(cpu_set_t); bytes <= 64 * sizeof(cpu_set_t); bytes *= 2) {
        std::vector<cpu_set_t> set(bytes / sizeof(cpu_set_t));
        if (::sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
    }
    return 1;
}

}  // namespace

double cpu_quota(const std::string& root) {
    const std::string groups = read_small_file(root + "/proc/self/cgroup");
    const std::string mount = root + "/sys/fs/cgroup";
    double smallest = 0;
    std::string_view rest = groups;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::size_t first = line.find(':');
        const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        const std::string path(line.substr(second + 1));
        double quota = 0;
        if (controllers.empty()) quota = smallest_upwards(mount, path, quota_v2);
        if (names_cpu(controllers)) quota = smallest_upwards(mount + "/cpu", path, quota_v1);
        if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    }
    return smallest;
}

int usable_cpus(const std::string& root) {
    const int cpus = cpus_by_affinity();
    const double quota = cpu_quota(root);
    if (quota <= 0 || quota >= cpus) return cpus;
    return std::max(1, static_cast<int>(quota));
}

int count_workers(const WorkerCount& wanted, const HostCounts& host) {
    switch (wanted.what) {
        case CountOf::not_given:
        case CountOf::number:
            return wanted.number;
        case CountOf::cpus:
            return std::min(host.cpus(), max_workers);
        case CountOf::gpus:
            if (const int gpus = host.gpus(); gpus > 0) return std::min(gpus, max_workers);
            throw UsageError(
                "--nproc-per-node: \"gpu\" finds no GPU: CUDA_VISIBLE_DEVICES shows none, or there "
                "is no /dev/nvidia0 (under WSL2: nvidia-smi lists none); give a number, or auto or "
                "cpu");
        case CountOf::gpus_else_cpus:
            if (const int gpus = host.gpus(); gpus > 0) return std::min(gpus, max_workers);
            return std::min(host.cpus(), max_workers);
    }
    return 1;
}

}  // namespace ddp::launcher
