// Kills and reaps every descendant of this process: children, children in sessions of their own,
// daemons, and processes that fork as fast as they are killed. Works because a subreaper inherits
// all orphans below it: whoever outlives a round is a child of ours in the next.
#pragma once

#include "base/deadline.hpp"

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// Makes this process the one that inherits the orphans below it. Throws SystemError.
void become_subreaper();

// Direct children now, zombies too.
std::vector<pid_t> children_of(pid_t pid);

struct SweepResult {
    bool complete = false;         // nothing but the spared is left
    std::vector<pid_t> survivors;  // SIGKILL was sent, and they were still there at the deadline
};

// Repeats until no child is left. Children in `spared`, which were there before we began, are left
// alone with all below them.
SweepResult sweep_descendants(const base::Deadline& deadline, std::span<const pid_t> spared = {});

// For a message: "pid 12, pid 13". Without /proc the kernel says that there is somebody, not who.
std::string describe_survivors(const SweepResult& result);

}  // namespace ddp::launcher
