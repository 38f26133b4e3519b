#include "launcher/verdict/process_state.hpp"

#include "base/process/process_tree.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

namespace ddp::launcher {
namespace {

// Of a list of cgroups, with long names.
constexpr std::size_t most_bytes = 16384;

std::string in_proc(pid_t pid, const char* file) {
    return base::read_small_file("/proc/" + std::to_string(pid) + "/" + file, most_bytes);
}

// Where several hierarchies are mounted, the freezer has its own.
bool is_frozen(pid_t pid) {
    std::istringstream lines(in_proc(pid, "cgroup"));
    for (std::string line; std::getline(lines, line);) {
        const std::size_t name = line.find(':');
        const std::size_t path = name != line.npos ? line.find(':', name + 1) : line.npos;
        if (path == line.npos) continue;
        const std::string controllers = line.substr(name + 1, path - name - 1);
        const std::string folder = line.substr(path + 1);
        if (controllers.empty()) {
            for (const char* const root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
                const std::string events = base::read_small_file(root + folder + "/cgroup.events");
                if (events.find("frozen 1") != events.npos) return true;
            }
        } else if (controllers == "freezer") {
            if (base::read_small_file("/sys/fs/cgroup/freezer" + folder + "/freezer.state") ==
                "FROZEN\n") {
                return true;
            }
        }
    }
    return false;
}

// 0: it is not there.
long long number_after(std::string_view label, const std::string& status) {
    const std::size_t at = status.find(label);
    return at == status.npos ? 0 : std::atoll(status.c_str() + at + label.size());
}

}  // namespace

ProcessState look_at_process(pid_t pid) {
    const auto stat = base::stat_of(pid);
    if (!stat) return {.pid = pid};
    const std::string status = in_proc(pid, "status");
    static const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
    return {.pid = pid,
            .state = stat->state,
            .tracer = static_cast<pid_t>(number_after("\nTracerPid:", status)),
            .is_frozen = is_frozen(pid),
            .cpu_time = std::chrono::milliseconds(stat->cpu_ticks * 1000 / ticks),
            .resident_bytes = static_cast<std::uint64_t>(number_after("\nVmRSS:", status)) * 1024};
}

pid_t process_of_rank(pid_t joined, pid_t worker) {
    const bool is_its = joined == worker || (joined > 1 && base::descends_from(joined, worker));
    return is_its ? joined : worker;
}

}  // namespace ddp::launcher
