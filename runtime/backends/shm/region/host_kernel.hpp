// What a rank asks the kernel about its peers: the owner of a descriptor, of a socket's other end,
// of a process; and the copies to and from a peer's memory. An interface, so that tests can
// simulate what this host does not have: Yama, user namespaces, containers of other users.
// Invariant: who owns something is never taken from shared memory or from a text, only from here.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <string>

namespace ddp::shm {

inline constexpr std::size_t page_bytes = 4096;  // x86-64's

class HostKernel {
public:
    HostKernel() = default;
    virtual ~HostKernel() = default;
    HostKernel(const HostKernel&) = delete;
    HostKernel& operator=(const HostKernel&) = delete;

    static const HostKernel& real();

    // This process's effective user.
    virtual uid_t user() const;
    virtual bool stands_for_many(uid_t user) const;  // base/unmapped_user.hpp
    // As fstat, but 0 or an errno.
    virtual int describe(int fd, struct stat& status) const;
    // F_GET_SEALS: -1 where there are none.
    virtual int seals(int fd) const;
    // SO_PEERCRED; pid -1 where that cannot be told.
    virtual ucred peer_of(int socket) const;
    // A pidfd, or none with errno.
    virtual base::UniqueFd watch(pid_t process) const;
    // The effective user of a process; the caller holds a pidfd of it and looks at that afterwards.
    virtual std::optional<uid_t> user_of(pid_t process) const;
    // process_vm_readv and process_vm_writev of one piece. `remote` of the latter may be changed by
    // others meanwhile.
    virtual ssize_t read_memory(pid_t process, const iovec& local, const iovec& remote) const;
    virtual ssize_t write_memory(pid_t process, const iovec& local, const iovec* remote) const;
};

// Empty, or why what belongs to `owner` is not this process's user's: "belongs to user 7, ...".
std::string why_not_ours(const HostKernel& kernel, uid_t owner);

// Throws SystemError where this process cannot watch others: no rank without it can have shm.
void require_watching(const HostKernel& kernel);

}  // namespace ddp::shm
