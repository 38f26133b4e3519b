// TCP sockets and exact reads and writes under a deadline. All descriptors are close-on-exec. IPv4
// and IPv6; names are resolved anew at each attempt, since a host may come back with another
// address.
#pragma once

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ddp::base {

// Binds and listens; port 0 asks for a free one. Non-blocking. Throws SystemError that names host
// and port.
UniqueFd listen_tcp(const std::string& host, std::uint16_t port);
std::uint16_t local_port(int fd);

// Connects, once (no retry). Non-blocking socket with TCP_NODELAY, keepalive. Returns an invalid fd
// and sets `error` to an errno when nobody listens or the host cannot be reached or resolved
// (EHOSTUNREACH) in time.
UniqueFd try_connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline,
                         int& error);

// A peer whose host has vanished is noticed within about half a minute on an idle connection,
// within a minute when something is on its way there. Best effort.
void keep_alive(int fd);

// Writes all bytes to a socket, blocking or not, never raising SIGPIPE. Throws TimeoutError,
// SystemError.
void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline);
// Fills `bytes`. Throws TimeoutError, SystemError (ECONNRESET when the other side closed).
void receive_all(int fd, std::span<std::byte> bytes, const Deadline& deadline);
// Whether the descriptor is readable (or closed by the other side) before the deadline.
bool wait_readable(int fd, const Deadline& deadline);

// This host's name as it calls itself; "unknown host" when it does not.
std::string host_name();

}  // namespace ddp::base
