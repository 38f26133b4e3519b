#include "launcher/verdict/process_state.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace ddp::launcher {
namespace {

constexpr std::size_t most_bytes = 4096;

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    std::array<char, most_bytes> bytes;
    file.read(bytes.data(), bytes.size());
    return {bytes.data(), static_cast<std::size_t>(file.gcount())};
}

std::string in_proc(pid_t pid, const char* file) {
    return read_file("/proc/" + std::to_string(pid) + "/" + file);
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
                const std::string events = read_file(root + folder + "/cgroup.events");
                if (events.find("frozen 1") != events.npos) return true;
            }
        } else if (controllers == "freezer") {
            if (read_file("/sys/fs/cgroup/freezer" + folder + "/freezer.state") == "FROZEN\n") {
                return true;
            }
        }
    }
    return false;
}

pid_t tracer_of(pid_t pid) {
    const std::string status = in_proc(pid, "status");
    constexpr std::string_view label = "\nTracerPid:";
    const std::size_t at = status.find(label);
    return at == status.npos ? 0 : std::atoi(status.c_str() + at + label.size());
}

}  // namespace

// "4711 (a name) S 4700 ..."; the processor times are the 12th and 13th after the state.
StatLine parse_stat(const std::string& text) {
    const std::size_t name_ends = text.rfind(") ");
    if (name_ends == text.npos) return {};
    std::istringstream rest(text.substr(name_ends + 2));
    StatLine line;
    rest >> line.state >> line.parent;
    std::string skipped;
    for (int field = 0; field < 9; ++field) rest >> skipped;
    unsigned long long user = 0;
    unsigned long long system = 0;
    rest >> user >> system;
    line.cpu_ticks = user + system;
    return rest ? line : StatLine{};
}

ProcessState look_at_process(pid_t pid) {
    const StatLine line = parse_stat(in_proc(pid, "stat"));
    static const long ticks = ::sysconf(_SC_CLK_TCK);
    return {.pid = pid,
            .state = line.state,
            .tracer = line.state != 0 ? tracer_of(pid) : 0,
            .is_frozen = line.state != 0 && is_frozen(pid),
            .cpu_time = std::chrono::milliseconds(line.cpu_ticks * 1000 /
                                                  static_cast<unsigned long long>(ticks))};
}

pid_t process_of_rank(pid_t joined, pid_t worker) {
    constexpr int most_generations = 64;
    pid_t pid = joined;
    for (int i = 0; i < most_generations && pid > 1; ++i) {
        if (pid == worker) return joined;
        pid = parse_stat(in_proc(pid, "stat")).parent;
    }
    return worker;
}

}  // namespace ddp::launcher
