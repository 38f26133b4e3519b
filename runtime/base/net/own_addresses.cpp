#include "base/net/own_addresses.hpp"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp::base {
namespace {

// Empty where the kernel does not tell.
UniqueFd subscribe_to_changes() {
    UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    if (!socket || ::bind(socket.get(), generic, sizeof address) != 0) return {};
    return socket;
}

std::optional<std::vector<SocketAddress>> list_addresses() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return std::nullopt;
    std::vector<SocketAddress> found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr) continue;
        const bool is_v4 = entry->ifa_addr->sa_family == AF_INET;
        if (!is_v4 && entry->ifa_addr->sa_family != AF_INET6) continue;
        SocketAddress& address = found.emplace_back();
        address.size = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&address.bytes, entry->ifa_addr, address.size);
    }
    ::freeifaddrs(list);
    return found;
}

bool can_be_bound(SocketAddress address) {
    address.set_port(0);
    const UniqueFd probe(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return !probe || ::bind(probe.get(), address.generic(), address.size) == 0 ||
           errno != EADDRNOTAVAIL;
}

}  // namespace

// Reads all that has come; what cannot be read may have been a change.
bool OwnAddresses::has_changed() {
    bool changed = false;
    for (;;) {
        std::array<char, 4096> message;
        if (::recv(changes_.get(), message.data(), message.size(), 0) < 0) {
            if (errno == EAGAIN) return changed;
            if (errno != EINTR && errno != ENOBUFS) return true;
        }
        changed = true;
    }
}

bool OwnAddresses::contains(const SocketAddress& address) {
    const bool is_first = !std::exchange(is_asked_, true);
    if (is_first) changes_ = subscribe_to_changes();
    if (!changes_ || has_changed() || is_first) listed_ = list_addresses();
    if (!listed_) return can_be_bound(address);
    return std::ranges::any_of(*listed_,
                               [&](const SocketAddress& one) { return one.is_same_host(address); });
}

}  // namespace ddp::base
