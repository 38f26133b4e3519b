// A child of this process, held by a pidfd: watched, signalled and reaped by it alone, so that no
// other child is touched and a number that has passed to somebody else does no harm. What happens
// to SIGCHLD in this process does not matter either, but for the exit status.
#pragma once

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "contract/exit_status.hpp"

#include <sys/types.h>

#include <optional>

namespace ddp::launching {

class ChildProcess {
public:
    ChildProcess() = default;
    // Call it right after the child was made. Throws SystemError when there is no pidfd; the child
    // is then killed and reaped. One that somebody else has reaped by now has ended.
    explicit ChildProcess(pid_t pid);

    pid_t pid() const { return pid_; }
    int fd() const { return pidfd_.get(); }           // readable at its end; -1: it ended at once
    bool wait(const base::Deadline& deadline) const;  // whether it has ended by then
    void signal(int signal) const;
    // Waits for its end and forgets it. Nothing when somebody else has reaped it, or SIGCHLD is
    // ignored here.
    std::optional<contract::ExitStatus> reap();

private:
    pid_t pid_ = -1;
    base::UniqueFd pidfd_;
};

}  // namespace ddp::launching
