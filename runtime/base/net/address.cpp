#include "base/net/address.hpp"

#include <ddp/error.hpp>

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace ddp::base {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

const sockaddr_in& v4(const SocketAddress& address) {
    return reinterpret_cast<const sockaddr_in&>(address.bytes);
}

const sockaddr_in6& v6(const SocketAddress& address) {
    return reinterpret_cast<const sockaddr_in6&>(address.bytes);
}

SocketAddress address_of(const sockaddr* from, socklen_t size) {
    SocketAddress address;
    address.size = std::min<socklen_t>(size, sizeof address.bytes);
    std::memcpy(&address.bytes, from, address.size);
    return address;
}

// An IPv4 address inside an IPv6 address as the IPv4 address.
SocketAddress unmapped(const SocketAddress& address) {
    if (address.family() != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6(address).sin6_addr)) {
        return address;
    }
    sockaddr_in inner{};
    inner.sin_family = AF_INET;
    inner.sin_port = v6(address).sin6_port;
    std::memcpy(&inner.sin_addr, &v6(address).sin6_addr.s6_addr[12], sizeof inner.sin_addr);
    return address_of(reinterpret_cast<const sockaddr*>(&inner), sizeof inner);
}

// Returns getaddrinfo's code.
int look_up(const std::string& host, std::uint16_t port, int flags, AddressList& list) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (code == 0) list.reset(found);
    return code;
}

bool contains(const std::vector<SocketAddress>& addresses, const SocketAddress& wanted) {
    return std::any_of(addresses.begin(), addresses.end(), [&](const SocketAddress& one) {
        return one.size == wanted.size && std::memcmp(&one.bytes, &wanted.bytes, one.size) == 0;
    });
}

}  // namespace

std::uint16_t SocketAddress::port() const {
    return ntohs(family() == AF_INET6 ? v6(*this).sin6_port : v4(*this).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
    if (family() == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(bytes).sin6_port = htons(port);
    } else {
        reinterpret_cast<sockaddr_in&>(bytes).sin_port = htons(port);
    }
}

std::string SocketAddress::host() const {
    std::array<char, NI_MAXHOST> text{};
    const SocketAddress shown = unmapped(*this);
    if (shown.family() != AF_INET && shown.family() != AF_INET6) return {};
    const int code = ::getnameinfo(shown.generic(), shown.size, text.data(), text.size(), nullptr,
                                   0, NI_NUMERICHOST);
    return code == 0 ? text.data() : "";
}

bool SocketAddress::is_loopback() const {
    const SocketAddress plain = unmapped(*this);
    if (plain.family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&v6(plain).sin6_addr) != 0;
    return plain.family() == AF_INET &&
           ntohl(v4(plain).sin_addr.s_addr) >> 24 == INADDR_LOOPBACK >> 24;
}

bool SocketAddress::is_link_local() const {
    return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(*this).sin6_addr) != 0;
}

bool SocketAddress::is_same_host(const SocketAddress& other) const {
    const SocketAddress one = unmapped(*this);
    const SocketAddress two = unmapped(other);
    if (one.family() != two.family()) return false;
    if (one.family() == AF_INET) return v4(one).sin_addr.s_addr == v4(two).sin_addr.s_addr;
    const auto scope_of_one = v6(one).sin6_scope_id;
    const auto scope_of_two = v6(two).sin6_scope_id;
    return one.family() == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&v6(one).sin6_addr, &v6(two).sin6_addr) != 0 &&
           (scope_of_one == 0 || scope_of_two == 0 || scope_of_one == scope_of_two);
}

SocketAddress local_address(int fd) {
    const SocketAddress address = address_of(fd, End::own);
    if (address.size == 0) throw SystemError("getsockname", errno);
    return address;
}

SocketAddress address_of(int fd, End end) {
    SocketAddress address;
    address.size = sizeof address.bytes;
    const auto name_of = end == End::own ? ::getsockname : ::getpeername;
    if (name_of(fd, reinterpret_cast<sockaddr*>(&address.bytes), &address.size) != 0) return {};
    return address;
}

std::string host_and_port(std::string_view host, std::uint16_t port) {
    const std::string name(host);
    const bool needs_brackets = name.find(':') != name.npos && !name.starts_with('[');
    return (needs_brackets ? "[" + name + "]" : name) + ":" + std::to_string(port);
}

std::string without_brackets(std::string_view host) {
    const bool bracketed = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
    return std::string(bracketed ? host.substr(1, host.size() - 2) : host);
}

std::optional<SocketAddress> numeric_address(const std::string& host, std::uint16_t port) {
    AddressList list(nullptr, &::freeaddrinfo);
    if (host.empty() || look_up(host, port, AI_NUMERICHOST, list) != 0) return std::nullopt;
    return address_of(list->ai_addr, list->ai_addrlen);
}

Resolved resolve(const std::string& host, std::uint16_t port) {
    AddressList list(nullptr, &::freeaddrinfo);
    Resolved result;
    const int code = look_up(host, port, 0, list);
    if (code == EAI_SYSTEM) {
        result.trouble = ::strerror(errno);
    } else if (code != 0) {
        result.trouble = ::gai_strerror(code);
    }
    for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
        const SocketAddress address = address_of(one->ai_addr, one->ai_addrlen);
        if (!contains(result.addresses, address)) result.addresses.push_back(address);
    }
    return result;
}

std::vector<SocketAddress> alternate_families(std::span<const SocketAddress> addresses) {
    std::vector<SocketAddress> order(addresses.begin(), addresses.end());
    for (std::size_t at = 1; at < order.size(); ++at) {
        const auto begin = order.begin() + static_cast<std::ptrdiff_t>(at);
        const int last_family = order[at - 1].family();
        const auto other = std::find_if(begin, order.end(), [&](const SocketAddress& one) {
            return one.family() != last_family;
        });
        if (other != order.end()) std::rotate(begin, other, other + 1);
    }
    return order;
}

}  // namespace ddp::base
