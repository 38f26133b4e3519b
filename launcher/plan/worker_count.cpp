// A cgroup's quota binds all below it, so every level from ours up to the mount is looked at.
#include "launcher/plan/worker_count.hpp"

#include "base/process/cgroup.hpp"
#include "base/process/process_tree.hpp"

#include <ddp/error.hpp>

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace ddp::launcher {
namespace {

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
    const std::string text = base::read_small_file(folder + "/cpu.max");
    const std::size_t blank = text.find(' ');
    return blank == text.npos ? 0 : ratio(text, std::string_view(text).substr(blank + 1));
}

double quota_v1(const std::string& folder) {
    const std::string quota = base::read_small_file(folder + "/cpu.cfs_quota_us");
    return quota.empty() ? 0 : ratio(quota, base::read_small_file(folder + "/cpu.cfs_period_us"));
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
    double smallest = 0;
    for (const base::CgroupFolders& folders : base::cgroups_of("self", "cpu", root)) {
        for (const std::string& folder : folders) {
            for (const double quota : {quota_v2(folder), quota_v1(folder)}) {
                if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
            }
        }
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
