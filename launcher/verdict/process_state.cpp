#include "launcher/verdict/process_state.hpp"

#include "base/process/cgroup.hpp"
#include "base/process/process_tree.hpp"
#include "launcher/verdict/system_call.hpp"

#include <unistd.h>

#include <cstdint>
#include <string>

namespace ddp::launcher {
namespace {

// A group is, too, where one above it is.
bool is_frozen(pid_t pid) {
    for (const base::CgroupFolders& folders : base::cgroups_of(std::to_string(pid), "freezer")) {
        for (const std::string& folder : {folders.front(), folders.back()}) {
            const std::string events = base::read_small_file(folder + "/cgroup.events");
            const std::string state = base::read_small_file(folder + "/freezer.state");
            if (events.find("frozen 1") != events.npos || state == "FROZEN\n") return true;
            if (!events.empty() || !state.empty()) break;  // it is there
        }
    }
    return false;
}

}  // namespace

ProcessState look_at_process(pid_t pid) {
    const auto stat = base::stat_of(pid);
    if (!stat) return {.pid = pid};
    const std::string status =
        base::read_small_file("/proc/" + std::to_string(pid) + "/status", 4096);
    static const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
    return {.pid = pid,
            .state = stat->state,
            .tracer = static_cast<pid_t>(base::number_behind("\nTracerPid:", status).value_or(0)),
            .is_frozen = is_frozen(pid),
            .cpu_time = std::chrono::milliseconds(stat->cpu_ticks * 1000 / ticks),
            .resident_bytes = base::number_behind("\nVmRSS:", status).value_or(0) * 1024,
            .waits_in = stat->state == 'S' || stat->state == 'D' ? system_call_of(pid) : ""};
}

pid_t process_of_rank(pid_t joined, pid_t worker) {
    const bool is_its = joined == worker || (joined > 1 && base::descends_from(joined, worker));
    return is_its ? joined : worker;
}

std::optional<ThreadRuns> runs_of(pid_t pid, pid_t tid) {
    const std::string thread = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid);
    const std::string status = base::read_small_file(thread + "/status", 8192);
    const auto voluntary = base::number_behind("\nvoluntary_ctxt_switches:", status);
    const auto others = base::number_behind("\nnonvoluntary_ctxt_switches:", status);
    const auto cpu = base::number_behind("", base::read_small_file(thread + "/schedstat"));
    if (!voluntary || !others || !cpu) return std::nullopt;
    return ThreadRuns{.switches = *voluntary + *others,
                      .sleeps = *voluntary,
                      .cpu = std::chrono::nanoseconds(*cpu)};
}

}  // namespace ddp::launcher
