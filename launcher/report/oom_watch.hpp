// The kernel's counts of OOM kills, of this process's cgroup (v2 memory.events, v1
// memory.oom_control) and of the host (/proc/vmstat): read when an attempt begins and when it
// failed, they tell whether a SIGKILL was the OOM killer's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp::launcher {

struct OomCounts {
    std::optional<std::int64_t> cgroup;  // nothing where it cannot be read
    std::optional<std::int64_t> host;
};

enum class OomEvidence : std::uint8_t {
    unknown,  // no count can be read here
    none,     // the host's count did not rise
    host,     // it did, somewhere on this host
    cgroup,   // it did, in our cgroup
};

// `root`: what stands before /proc and /sys, for tests.
OomCounts read_oom_counts(const std::string& root = {});

OomEvidence compare(const OomCounts& before, const OomCounts& after);

}  // namespace ddp::launcher
