// Processes as /proc tells of them: parents, children, memory, holders of a socket. A snapshot:
// whoever ends or forks meanwhile may be missing. Nothing here throws; what cannot be read is not
// there.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::base {

// The first bytes of a small file; empty when it cannot be read.
std::string read_small_file(const std::string& path, std::size_t most = 1024);

// What stands behind `label` on its line, without blanks before it: of "VmRSS:" in such a file
// "812 kB". Empty: it is not there.
std::string_view text_behind(std::string_view label, std::string_view text);
// The number that it begins with; nothing: there is none.
std::optional<std::uint64_t> number_behind(std::string_view label, std::string_view text);

// Names in a folder, without those that begin with a dot.
std::vector<std::string> names_in(const std::string& folder);

// What /proc/<pid>/stat says of a process.
struct ProcessStat {
    char state = '?';  // as ps shows it: Z a zombie, D in a call that nothing interrupts
    pid_t parent = 0;
    pid_t session = 0;
    std::uint64_t major_faults = 0;  // pages that its threads had to wait for the disk for
    std::uint64_t cpu_ticks = 0;     // that all of its threads have used
    std::uint64_t started = 0;  // in clock ticks since the host's start: tells users of a pid apart
    std::string name;           // at most 15 bytes, chosen by the process
};
std::optional<ProcessStat> stat_of(pid_t pid);

// Direct children now, zombies too.
std::vector<pid_t> children_of(pid_t pid);

// Calls `look` for each descendant, parents first, until it returns true; returns whether it did.
bool any_descendant(pid_t pid, const std::function<bool(pid_t)>& look);

// Whether `ancestor` has started `pid`, or who started that, and so on.
bool descends_from(pid_t pid, pid_t ancestor);

// Whether this process has the socket with this inode open; nothing when that cannot be seen
// (another user's process).
std::optional<bool> holds_socket(pid_t pid, ino_t inode);

// What lies in a process's memory.
struct Mapping {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;     // behind it
    std::string access = {};   // "r-xp"
    std::uint64_t offset = 0;  // in the file
    std::string path = {};     // of the file; "[stack]" and the like; empty: of none

    bool is_of_file() const { return path.starts_with('/'); }
};

// By address, until `take` returns false. `process`: its number, or "self". Of one that may not be
// looked at, none.
void for_each_mapping(const std::string& process, const std::function<bool(const Mapping&)>& take);

}  // namespace ddp::base
