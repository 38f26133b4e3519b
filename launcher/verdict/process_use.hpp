// What a process has had of its host, as the kernel counts it, and in words what a slow one lacks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Of a cgroup's CPU quota, which binds all in it, in how many periods there was work, and in how
// many it was used up.
struct CpuQuota {
    std::string folder;
    std::uint64_t periods = 0;
    std::uint64_t used_up = 0;
};

// Since its start, at a moment.
struct ProcessUse {
    using Time = std::chrono::steady_clock::time_point;
    using Duration = std::chrono::nanoseconds;

    Time at{};
    Duration cpu{};                                     // of all of its threads
    std::optional<Duration> waited_for_processor = {};  // its first thread, which could have run
    std::vector<CpuQuota> quotas = {};                  // of its cgroups that have one
    std::uint64_t major_faults = 0;                     // pages that came from the disk
    std::uint64_t swapped_bytes = 0;                    // of its memory now
    std::string processors = {};                        // where it may run now: "0-3,8"
};

// Nothing: it is not there.
std::optional<ProcessUse> look_at_use(pid_t pid);

// Between two moments.
struct UseRate {
    double cpu = 0;                   // of one processor
    double waited_for_processor = 0;  // of the time; 0 also where it is not known
    double throttled = 0;             // of the periods of the quota that was used up most often
    double major_faults = 0;          // a second
    std::uint64_t swapped_bytes = 0;
    std::string processors = {};
};
UseRate rate_of(const ProcessUse& before, const ProcessUse& after);

// " waited for a processor for 41 % of the time (the others 2 %): ...": what of this host holds up
// a process that is slower than others which do the same.
std::string what_differs(const UseRate& slow, const UseRate& others);

}  // namespace ddp::launcher
