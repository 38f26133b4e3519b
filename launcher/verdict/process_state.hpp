// What the kernel says of a rank's process: whether it can run at all.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp::launcher {

struct ProcessState {
    pid_t pid = 0;
    char state = 0;          // as in /proc/PID/stat: 'R', 'S', 'D', 'T', 't'...; 0: not known
    pid_t tracer = 0;        // a debugger; 0: none
    bool is_frozen = false;  // its cgroup is
    std::chrono::milliseconds cpu_time{0};  // that it has used so far, in all threads
    std::uint64_t resident_bytes = 0;       // of its memory, what is in the host's
    std::string waits_in = {};              // as system_call_of(), where it sleeps

    // Stopped, held by a debugger, or frozen: it does nothing, whatever its program is.
    bool is_held() const { return state == 'T' || state == 't' || is_frozen; }
};

ProcessState look_at_process(pid_t pid);

// How often a thread has run, and for how long.
struct ThreadRuns {
    std::uint64_t switches = 0;
    std::uint64_t sleeps = 0;  // of the switches: it had to wait. One that polls never does
    std::chrono::nanoseconds cpu{0};
};
// Nothing where it has ended, or the kernel does not tell.
std::optional<ThreadRuns> runs_of(pid_t pid, pid_t tid);

// The process that has joined as the rank, where it is the worker or a descendant of it: a number
// from elsewhere, as of another PID namespace, may be anybody's. Else the worker.
pid_t process_of_rank(pid_t joined, pid_t worker);

}  // namespace ddp::launcher
