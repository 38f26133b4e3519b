// The owner of the other end of a TCP connection whose both ends are on this host: the user and the
// socket, from the kernel. First by one exact NETLINK_SOCK_DIAG query (sock_diag(7)), where that is
// refused by /proc/net/tcp and tcp6. Invariant: an answer is never about another connection, a
// listener, or a socket that no process holds any more, whose owner the kernel reports as root.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/net/own_addresses.hpp"
#include "base/unique_fd.hpp"

namespace ddp::store {

struct SocketOwner {
    uid_t user = 0;
    ino_t inode = 0;  // never 0: some process has the socket
};

// Single-threaded.
class SocketOwners {
public:
    enum class Source { netlink, proc, nothing };

    // Tries the sources in their order and keeps the first that answers, from `first` on.
    explicit SocketOwners(Source first = Source::netlink);

    Source source() const { return source_; }
    // Why a source before it does not answer: "NETLINK_SOCK_DIAG: Permission denied"; empty: all
    // do.
    const std::string& refusals() const { return refusals_; }

    // Of the other end of this connected socket. Nothing when no such socket is on this host (in
    // this network namespace), or nobody has it any more.
    std::optional<SocketOwner> peer_of(int connection) const;
    // Of the socket here, in this network namespace, whose address is `own` and which is connected
    // to `other`. Nothing as above. Sockets that are bound to the loopback device cost another
    // question to the kernel; a connection that came from another host has none.
    enum class Devices { none, loopback_too };
    std::optional<SocketOwner> owner_of(const base::SocketAddress& own,
                                        const base::SocketAddress& other,
                                        Devices devices = Devices::loopback_too) const;
    // Of all sockets that listen on this port of this host, or only of those that are found at a
    // loopback address.
    enum class At { loopback, any };
    std::vector<SocketOwner> listeners_on(std::uint16_t port, At at) const;

private:
    Source source_ = Source::nothing;
    std::string refusals_;
    base::UniqueFd netlink_;
};

// Whether the other end of this connected socket can only be on this host: its address is a
// loopback one, the connection's own, or an interface's, whatever its scope.
bool peer_is_on_this_host(int connection, base::OwnAddresses& own);
// The same of a connection's two ends.
bool is_on_this_host(const base::SocketAddress& there, const base::SocketAddress& here,
                     base::OwnAddresses& own);

// "127.0.0.1:29500", "[::1]:29500" of the other end.
std::string peer_address(int connection);

}  // namespace ddp::store
