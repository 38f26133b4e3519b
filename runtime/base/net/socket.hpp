// TCP sockets and exact reads and writes under a deadline. All descriptors are close-on-exec. IPv4
// and IPv6; names are resolved anew at each attempt, since a host may come back with another
// address. Whoever looks a name up waits for name servers beyond any deadline (address.hpp).
#pragma once

#include "base/deadline.hpp"
#include "base/net/address.hpp"
#include "base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::base {

// Binds and listens at the first address of `host`; port 0 asks for a free one. Non-blocking.
// Throws SystemError that names host and port.
UniqueFd listen_tcp(const std::string& host, std::uint16_t port);
// At all addresses of `host` that this host has, a socket for each, all on one port, never none;
// port 0 asks for one that is free at all of them. Throws SystemError: EADDRNOTAVAIL where the name
// has no address, or none of this host's.
std::vector<UniqueFd> listen_tcp_all(const std::string& host, std::uint16_t port);
// At all addresses of this host: IPv6 and IPv4 by one socket, or IPv4 where there is no IPv6.
UniqueFd listen_tcp_everywhere(std::uint16_t port);
std::uint16_t local_port(int fd);

// A connection, or why there is none.
struct ConnectResult {
    UniqueFd fd{};  // non-blocking, with TCP_NODELAY and keepalive; invalid: the rest says why
    // Of the address that got furthest: ECONNREFUSED before ETIMEDOUT before EHOSTUNREACH before
    // ENETUNREACH; EHOSTUNREACH also where the name has no address.
    int error = 0;
    // The same in words: of each address, or the resolver's about the name.
    std::string trouble{};
};
// Connects, once (no retry): to the first address that answers (RFC 8305, "happy eyeballs"). The
// next address is tried when the one before has failed, and beside it once 250 ms have passed
// without an answer. Returns by the deadline. Throws SystemError when no socket can be had.
ConnectResult connect_tcp(std::span<const SocketAddress> addresses, const Deadline& deadline);
// Resolves the name first, which may take longer than the deadline.
ConnectResult connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline);
// The same for callers to whom the errno is enough: 0 when there is a connection.
UniqueFd try_connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline,
                         int& error);

// A peer whose host has vanished is noticed within about half a minute on an idle connection,
// within a minute when something is on its way there. Best effort.
void keep_alive(int fd);
// Ends a TCP connection at once, by a reset, whoever else has the descriptor: what is on its way in
// either direction is lost, and the kernel keeps nothing of it. A fraction of the work of a close,
// which waits for the other end's. Does nothing to another kind of socket.
void reset_connection(int fd);

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
