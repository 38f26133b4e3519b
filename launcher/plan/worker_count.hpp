// --nproc-per-node as a number: what the user gave, or what this host has. Decided once, before
// anything is started.
#pragma once

#include "launcher/options/options.hpp"

#include <functional>
#include <string>

namespace ddp::launcher {

// CPUs that this process may use: its affinity, cut to the quota of its cgroups (v1 and v2, whole
// CPUs, at least one). `root` is "" but in tests.
int usable_cpus(const std::string& root = "");

// The quota alone, in CPUs; 0: none.
double cpu_quota(const std::string& root);

struct HostCounts {
    std::function<int()> cpus;
    std::function<int()> gpus;
};

// Throws UsageError where GPUs are asked for and none is visible.
int count_workers(const WorkerCount& wanted, const HostCounts& host);

}  // namespace ddp::launcher
