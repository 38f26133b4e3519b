// Addresses of sockets, IPv4 and IPv6: as bytes, as text, and as what a name stands for. A host
// is never looked up by its address. Invariant: where a port follows an IPv6 address, in text, the
// address is in brackets: "10.0.0.1:29500", "[fe80::1%eth0]:29500".
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::base {

struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t size = 0;

    const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&bytes); }
    int family() const { return bytes.ss_family; }
    std::uint16_t port() const;
    void set_port(std::uint16_t port);
    // "10.0.0.1", "fe80::1%eth0": in digits, so that no name server is asked. An IPv4 address
    // inside an IPv6 address (::ffff:10.0.0.1) is written as the IPv4 address. Empty where neither.
    std::string host() const;
    // 127.0.0.0/8 and ::1.
    bool is_loopback() const;
    bool is_link_local() const;  // IPv6's, fe80::/10
    // Whether both are one host's address; ports are not compared, and a link-local address without
    // a scope is that of any link.
    bool is_same_host(const SocketAddress& other) const;
};

// Of this end of a socket. Throws SystemError.
SocketAddress local_address(int fd);
// Of either end of a connected socket; of no family (AF_UNSPEC) when it has been reset.
enum class End { own, other };
SocketAddress address_of(int fd, End end);

std::string host_and_port(std::string_view host, std::uint16_t port);
// "::1" of "[::1]"; anything else as it is.
std::string without_brackets(std::string_view host);

// The address that `host` is the text of, also with %scope; nothing when it is a name. Looks
// nothing up.
std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port = 0);

struct Resolved {
    std::vector<SocketAddress> addresses;  // in the order of getaddrinfo (RFC 6724), each once
    std::string trouble;                   // without addresses: why, in the resolver's words
};
// What the name stands for now: nothing is remembered, since a host may come back with another
// address. Blocks while name servers are asked (resolv.conf(5): 5 s a try, unless it says
// otherwise), whatever deadline the caller has; nobody is asked about an address in digits.
Resolved resolve(const std::string& host, std::uint16_t port);

// The order in which addresses are tried (RFC 8305, section 4): the first stays the first, then
// IPv6 and IPv4 in turn. Pure.
std::vector<SocketAddress> alternate_families(std::span<const SocketAddress> addresses);

}  // namespace ddp::base
