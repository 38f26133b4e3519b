// One started program: spawned by Boost.Process (in this room's one file that knows it), from then
// on held by a pidfd of our own. The child leads a process group, with a terminal a session, dies
// with the agent, has fresh signals, and inherits stdin, stdout, stderr and one named descriptor,
// nothing else.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/process/exit_status.hpp"

#include <ddp/error.hpp>

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// The program could not be executed. `exit_code()` is what a shell would say: 127, 126.
class SpawnError : public SystemError {
public:
    SpawnError(const std::string& what_was_tried, int code);
    int exit_code() const;
};

// What the child gets as 0, 1 and 2, and one more that it keeps under its number. Borrowed.
struct ChildDescriptors {
    int in;
    int out;
    int err;
    int inherited;
    int held_port = -1;                 // another one that it keeps: a socket, of rank 0
    bool out_is_terminal = false;       // and becomes the child's controlling one
    bool out_is_line_terminal = false;  // a pseudo-terminal that is nobody's controlling one
};

struct WorkerStart {
    std::string path;
    std::vector<std::string> arguments;    // from argv[0] on
    std::vector<std::string> environment;  // "NAME=value", all of it
    ChildDescriptors descriptors;
    rlimit descriptor_limit{};  // RLIMIT_NOFILE as the user set it; the agent's own is higher
};

class WorkerProcess {
public:
    // Returns when the program runs. Must be called on the process's main thread: the child is
    // killed when the thread that started it ends. Throws SpawnError, SystemError; no child is left
    // then.
    static WorkerProcess start(const WorkerStart& start);

    pid_t pid() const { return pid_; }
    int pidfd() const { return pidfd_.get(); }  // readable when it has ended

    // How it ended, once; nothing while it runs.
    std::optional<ExitStatus> reap();
    // To the process, or to all of its process group. Only before reap() returned something: until
    // then the number cannot belong to anybody else.
    void signal(int signal) const;
    void signal_group(int signal) const;

private:
    WorkerProcess(pid_t pid, base::UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

    pid_t pid_;
    base::UniqueFd pidfd_;
};

}  // namespace ddp::launcher
