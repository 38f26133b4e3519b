#include "launcher/process/forked_helper.hpp"

#include <ddp/error.hpp>

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

void close_from(int first) {
    if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
    std::vector<int> open;
    {
        const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
        while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
            open.push_back(std::atoi(entry->d_name));
        }
    }
    for (const int fd : open) {
        if (fd >= first) ::close(fd);
    }
}

[[noreturn]] void become_helper(const char* name, base::UniqueFd socket,
                                const std::function<void(int socket)>& work) {
    ::prctl(PR_SET_NAME, name, 0, 0, 0);
    // What it would keep open beside the socket: the channel, the store, the agent's stderr.
    constexpr int own = STDERR_FILENO + 1;
    ::dup2(STDIN_FILENO, STDERR_FILENO);  // both are /dev/null then
    if (socket.get() != own) ::dup2(socket.release(), own);
    close_from(own + 1);
    try {
        work(own);
    } catch (const std::exception&) {
        ::_exit(1);  // the agent sees the end of the socket
    }
    ::_exit(0);
}

}  // namespace

ForkedHelper fork_helper(const char* name, const char* what, int socket_type,
                         const std::function<void(int socket)>& work) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, socket_type | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw SystemError(std::string("socketpair for ") + what, errno);
    }
    ForkedHelper helper{.socket = base::UniqueFd(ends[0])};
    base::UniqueFd other(ends[1]);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);  // it never hears any
    helper.pid = ::fork();
    const int code = errno;
    if (helper.pid == 0) become_helper(name, std::move(other), work);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (helper.pid < 0) throw SystemError(std::string("fork ") + what, code);
    return helper;
}

}  // namespace ddp::launcher
