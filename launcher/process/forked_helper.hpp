// A child of the agent, of the same program, for what may hang: calls to file systems and name
// servers. Between the two there is one socket.
// Invariant: the child has no other descriptor of the agent's, and hears no signal but SIGKILL.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <functional>

namespace ddp::launcher {

struct ForkedHelper {
    pid_t pid = 0;
    base::UniqueFd socket;
};

// Forks one, called `name`, that runs `work` with its end of the socket (SOCK_STREAM,
// SOCK_SEQPACKET) and ends with 0, or with 1 when `work` throws. In a single-threaded process whose
// standard input is /dev/null. `what` is what errors call it: "the log writer". Throws SystemError.
ForkedHelper fork_helper(const char* name, const char* what, int socket_type,
                         const std::function<void(int socket)>& work);

}  // namespace ddp::launcher
