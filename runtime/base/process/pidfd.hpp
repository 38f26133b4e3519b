// pidfds: a process by a descriptor, so that a number that was given away again hits nobody else.
// The C library of old hosts has no functions for them.
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::base {

// Close-on-exec; -1 and errno when there is none.
int open_pidfd(pid_t pid) noexcept;
// As kill(): 0, or -1 and errno.
int signal_pidfd(int pidfd, int signal) noexcept;

// What the kernel, or the seccomp profile of this container, refuses of pidfd_open,
// pidfd_send_signal and waitid(P_PIDFD): a line for the user, empty when all are there. Kernels
// before 5.4 lack them, and so do Docker's default profiles before 20.10.
std::string missing_pidfd_calls();

}  // namespace ddp::base
