#include "backends/shm/region/host_kernel.hpp"

#include "base/process/pidfd.hpp"
#include "base/process/unmapped_user.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::shm {

const HostKernel& HostKernel::real() {
    static const HostKernel kernel;
    return kernel;
}

uid_t HostKernel::user() const { return ::geteuid(); }

bool HostKernel::stands_for_many(uid_t user) const { return base::stands_for_many(user); }

int HostKernel::describe(int fd, struct stat& status) const {
    return ::fstat(fd, &status) == 0 ? 0 : errno;
}

int HostKernel::seals(int fd) const { return ::fcntl(fd, F_GET_SEALS); }

ucred HostKernel::peer_of(int socket) const {
    ucred peer{-1, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer.pid = -1;
    return peer;
}

base::UniqueFd HostKernel::watch(pid_t process) const {
    return base::UniqueFd(base::open_pidfd(process));
}

// The folder always belongs to the process's effective user, dumpable or not (proc(5)). Where /proc
// shows only what one may look into, the kernel still lets only a process's user signal it.
std::optional<uid_t> HostKernel::user_of(pid_t process) const {
    struct stat status {};
    const std::string folder = "/proc/" + std::to_string(process);
    if (::stat(folder.c_str(), &status) == 0) return status.st_uid;
    if (user() != 0 && ::kill(process, 0) == 0) return user();
    return std::nullopt;
}

ssize_t HostKernel::read_memory(pid_t process, const iovec& local, const iovec& remote) const {
    return ::process_vm_readv(process, &local, 1, &remote, 1, 0);
}

ssize_t HostKernel::write_memory(pid_t process, const iovec& local, const iovec* remote) const {
    return ::process_vm_writev(process, &local, 1, remote, 1, 0);
}

std::string why_not_ours(const HostKernel& kernel, uid_t owner) {
    const uid_t mine = kernel.user();
    if (owner != mine) {
        return "belongs to user " + std::to_string(owner) + ", and this process to user " +
               std::to_string(mine) +
               " (all ranks of a host must run as one user, and in one user namespace)";
    }
    if (kernel.stands_for_many(owner)) {
        return "belongs to user " + std::to_string(owner) +
               ", which may be any stranger: this process's user namespace has no number for it";
    }
    return {};
}

void require_watching(const HostKernel& kernel) {
    if (kernel.watch(::getpid())) return;
    throw SystemError(
        "shm: pidfd_open, by which ranks see each other end (a kernel before 5.3, or "
        "a seccomp profile without it?)",
        errno);
}

}  // namespace ddp::shm
