#include "launch/child_process.hpp"

#include "base/process/pidfd.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::launching {

ChildProcess::ChildProcess(pid_t pid) : pid_(pid), pidfd_(base::open_pidfd(pid)) {
    if (pidfd_ || errno == ESRCH) return;
    const int code = errno;
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw SystemError("pidfd_open for child " + std::to_string(pid), code);
}

bool ChildProcess::wait(const base::Deadline& deadline) const {
    if (!pidfd_) return true;
    for (;;) {
        pollfd end{pidfd_.get(), POLLIN, 0};
        if (::poll(&end, 1, deadline.poll_timeout()) > 0) return true;
        if (deadline.passed()) return false;
    }
}

void ChildProcess::signal(int signal) const {
    if (pidfd_) base::signal_pidfd(pidfd_.get(), signal);
}

std::optional<contract::ExitStatus> ChildProcess::reap() {
    const base::UniqueFd pidfd = std::move(pidfd_);
    pid_ = -1;
    if (!pidfd) return std::nullopt;
    siginfo_t info{};
    int result = 0;
    do {
        result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED);
    } while (result != 0 && errno == EINTR);
    if (result != 0) return std::nullopt;
    return contract::exit_status_of(info);
}

}  // namespace ddp::launching
