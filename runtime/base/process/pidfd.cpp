#include "base/process/pidfd.hpp"

#include "base/unique_fd.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddp::base {
namespace {

std::string refused(const char* call, int code) {
    return std::string(call) + " is refused (" + std::strerror(code) +
           "); it takes Linux 5.4 or newer, and in a container a seccomp profile that allows "
           "pidfd_open and pidfd_send_signal (docker run --security-opt seccomp=FILE)";
}

}  // namespace

int open_pidfd(pid_t pid) noexcept { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

int signal_pidfd(int pidfd, int signal) noexcept {
    return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

std::string missing_pidfd_calls() {
    const UniqueFd self(open_pidfd(::getpid()));
    if (!self && (errno == EMFILE || errno == ENFILE)) return {};  // others say that better
    if (!self) return refused("pidfd_open", errno);
    if (signal_pidfd(self.get(), 0) != 0) return refused("pidfd_send_signal", errno);
    siginfo_t info{};
    const auto handle = static_cast<id_t>(self.get());
    // We are no child of ours; a kernel that does not know the question says EINVAL.
    const bool known = ::waitid(P_PIDFD, handle, &info, WEXITED | WNOHANG) == 0 || errno == ECHILD;
    return known ? std::string() : refused("waitid(P_PIDFD)", errno);
}

}  // namespace ddp::base
