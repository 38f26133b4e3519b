// The looks at this host, each one at a part of it. None changes anything that lasts, and none needs
// privileges; what a check cannot find out is a finding as well. `root` is "" but in tests, which
// have folders of their own for /proc, /sys and /dev.
#pragma once

#include "doctor/finding.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::doctor {

using Findings = std::vector<Finding>;

// CPUs by affinity and by the cgroup's quota, and whether the quota has stopped this cgroup.
Findings check_processors(const std::string& root = "");
// What is free, and the cgroup's limit. Memory between ranks: that a memfd can be had, and the size
// of /dev/shm, which other libraries use.
Findings check_memory(const std::string& root = "");
Findings check_shared_memory(const std::string& root = "");
// Of this process, which ddp-launch would inherit, and of the cgroup.
Findings check_limits(const std::string& root = "");

// System calls that ddp has a use for, and what seccomp and Yama forbid.
Findings check_kernel(const std::string& root = "");

// This host's name and interfaces, as other hosts need them.
Findings check_network();
// Whether jobs of several hosts could meet at `port`, which is not among those that the kernel
// gives out.
Findings check_port(std::uint16_t port, const std::string& root = "");
Findings check_clock();  // kept right by somebody, so that logs of several hosts can be compared

// GPUs, their driver and NCCL. In children: nvidia-smi, and whoever opens the driver's library.
Findings check_gpus(const std::string& root = "");
// Of what "nvidia-smi topo -m" prints: how each two are connected. Of one GPU, nothing. Pure.
Findings judge_gpu_links(const std::string& topology);
Findings check_libraries();  // those that ddp loads when they are there

// Two ranks by the ddp-launch and ddp-bench in `folder`: whether their sums are right, and their
// times beside what this host can do. At most a minute.
Findings check_two_ranks(const std::string& folder);

}  // namespace ddp::doctor
