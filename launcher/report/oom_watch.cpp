// Plain reads into one buffer: this runs in every launch.
#include "launcher/report/oom_watch.hpp"

#include "base/process/cgroup.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace ddp::launcher {
namespace {

constexpr std::size_t max_vmstat_bytes = 64 * 1024;  // vmstat has about 4 KiB

std::string read_file(const std::string& path) {
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return {};
    std::array<char, max_vmstat_bytes> buffer;  // not zeroed: most of it is never touched
    std::size_t filled = 0;
    while (filled < buffer.size()) {
        const ssize_t got = ::read(fd.get(), buffer.data() + filled, buffer.size() - filled);
        if (got <= 0) break;
        filled += static_cast<std::size_t>(got);
    }
    return {buffer.data(), filled};
}

// The number of the line "oom_kill <number>", which all three files have.
std::optional<std::int64_t> oom_kills_in(const std::string& path) {
    const auto count = base::number_behind("\noom_kill ", "\n" + read_file(path));
    if (!count) return std::nullopt;
    return static_cast<std::int64_t>(*count);
}

}  // namespace

OomCounts read_oom_counts(const std::string& root) {
    OomCounts counts;
    counts.host = oom_kills_in(root + "/proc/vmstat");
    // Those above may count others' kills.
    for (const base::CgroupFolders& folders : base::cgroups_of("self", "memory", root)) {
        for (const std::string& folder : {folders.front(), folders.back()}) {
            for (const char* const file : {"/memory.events", "/memory.oom_control"}) {
                if (!counts.cgroup) counts.cgroup = oom_kills_in(folder + file);
            }
        }
    }
    return counts;
}

OomEvidence compare(const OomCounts& before, const OomCounts& after) {
    const auto known = [](const auto& a, const auto& b) { return a.has_value() && b.has_value(); };
    if (known(before.cgroup, after.cgroup) && *after.cgroup > *before.cgroup) {
        return OomEvidence::cgroup;
    }
    if (!known(before.host, after.host)) return OomEvidence::unknown;
    return *after.host > *before.host ? OomEvidence::host : OomEvidence::none;
}

}  // namespace ddp::launcher
