// Stream sockets of this host, mostly with a name in the abstract namespace (unix(7)): there is no
// file, and the name goes with the socket. Whoever is in the network namespace may connect: ask
// local_peer() who it is. All are close-on-exec and non-blocking.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>
#include <string>

namespace ddp::base {

struct AbstractAddress {
    sockaddr_un address{};
    socklen_t size = 0;

    const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address); }
};
// `name`: at most 107 bytes; more are cut.
AbstractAddress abstract_address(const std::string& name);

// Both return an invalid fd when it cannot be had, and errno says why.
UniqueFd listen_local(const std::string& name);
// Once, without waiting: EAGAIN when the queue there is full.
UniqueFd try_connect_local(const std::string& name);

// The same of files, for whoever may use the file: a socket, neither bound nor connected, and what
// binds or connects it to one. False, and an invalid fd: errno says why. A path has at most 107
// bytes; more are cut.
UniqueFd make_local_socket();
bool bind_to_file(int socket, const std::string& path);
bool connect_to_file(int socket, const std::string& path);

// Who connected, as it was then; nothing where this is no such socket. A pid of 0: of a process in
// a PID namespace that cannot be seen from here.
std::optional<ucred> local_peer(int connection);

}  // namespace ddp::base
