// Kills and reaps every descendant of this process: children, children in sessions of their own,
// daemons, and processes that fork as fast as they are killed. Works because a subreaper inherits
// all orphans below it: whoever outlives a round is a child of ours in the next.
#pragma once

#include "base/deadline.hpp"

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Makes this process the one that inherits the orphans below it. Throws SystemError.
void become_subreaper();

// Whether any descendant of this process may be a child of its own: alive or not
// yet waited for. Costs one call.
bool has_children();

// Processes that are not to be touched, with all below them. A pid comes with its start time, so
// that a number which comes again is another process.
class ExcludedProcesses {
public:
    ExcludedProcesses() = default;
    ExcludedProcesses(std::initializer_list<pid_t> pids) {
        for (const pid_t pid : pids) add(pid);
    }
    void add(pid_t pid);  // does nothing for one that is gone
    void add_with_descendants(pid_t pid);
    bool contains(pid_t pid) const;
    std::vector<pid_t> groups() const;  // that those which still live are in
    bool empty() const { return started_.empty(); }

private:
    std::map<pid_t, std::uint64_t> started_;
};

struct SweepResult {
    bool complete = false;         // nothing is left but excluded processes
    std::vector<pid_t> survivors;  // SIGKILL was sent, and they were still there at the deadline
};

// Repeats until no child is left but excluded ones.
SweepResult sweep_descendants(const base::Deadline& deadline,
                              const ExcludedProcesses& excluded = {});

// The same for what is below another process, which cannot be waited for here: zombies do not
// count.
SweepResult sweep_below(pid_t ancestor, const base::Deadline& deadline);

// A living descendant, and what its parent was when it was seen.
struct Descendant {
    pid_t pid;
    pid_t parent;
    std::string name;  // as ps shows it
};
// Of this process, without zombies and excluded ones.
std::vector<Descendant> living_descendants(const ExcludedProcesses& excluded);
// To those of them that are still the same.
void signal_descendants(const std::vector<Descendant>& descendants, int signal);

// For a message: "pid 12, pid 13". Without /proc the kernel says that there is somebody, not who.
std::string describe_survivors(const SweepResult& result);
// "pid 12 (sleep), pid 13 (rsync)"; of many the first.
std::string describe(const std::vector<Descendant>& descendants);

}  // namespace ddp::launcher
