#include "backends/shm/host_kernel.hpp"

#include "base/pidfd.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace ddp::shm {
namespace {

// What the kernel shows for each user that a user namespace has no number for
// (/proc/sys/kernel/overflowuid, which nobody changes).
constexpr uid_t user_without_number = 65534;

}  // namespace

const HostKernel& HostKernel::real() {
    static const HostKernel kernel;
    return kernel;
}

uid_t HostKernel::user() const { return ::geteuid(); }

// One line "0 0 4294967295" outside of all user namespaces (user_namespaces(7)).
bool HostKernel::tells_users_apart() const {
    const base::UniqueFd file(::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
    if (!file) return false;
    std::array<char, 128> text{};
    if (::read(file.get(), text.data(), text.size() - 1) <= 0) return false;
    std::uint64_t here = 0, there = 0, count = 0;
    return std::sscanf(text.data(), "%" SCNu64 " %" SCNu64 " %" SCNu64, &here, &there, &count) ==
               3 &&
           here == 0 && count >= UINT32_MAX;
}

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
    if (owner == user_without_number && !kernel.tells_users_apart()) {
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
