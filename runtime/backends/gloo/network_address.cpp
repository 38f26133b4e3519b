#include "backends/gloo/network_address.hpp"

#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace ddp::gloo {
namespace {

std::string numeric(const sockaddr* address, socklen_t size) {
    char host[NI_MAXHOST];
    if (::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {};
    return host;
}

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

std::string list_names(const std::vector<Interface>& interfaces) {
    std::string names;
    for (const Interface& one : interfaces) {
        names += (names.empty() ? "" : ", ") + one.name + " (" + one.address + ")";
    }
    return names.empty() ? "none" : names;
}

// The source address of a packet to the master; nothing is sent. Empty when there is no way.
std::string address_towards(const MasterAddress& master) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(master.host.c_str(), std::to_string(master.port).c_str(), &hints, &found)) {
        return {};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
    for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
        const base::UniqueFd fd(::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (!fd || ::connect(fd.get(), to->ai_addr, to->ai_addrlen) != 0) continue;
        sockaddr_storage own{};
        socklen_t size = sizeof own;
        auto* const address = reinterpret_cast<sockaddr*>(&own);
        if (::getsockname(fd.get(), address, &size) == 0) return numeric(address, size);
    }
    return {};
}

std::string address_of(const std::string& name, const std::vector<Interface>& interfaces) {
    const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                    [&](const Interface& one) { return one.name == name; });
    if (found != interfaces.end()) return found->address;
    throw UsageError(
        "DDP_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) is " + name +
        ", but no such network interface is up here; there are: " + list_names(interfaces));
}

}  // namespace

std::vector<Interface> list_interfaces() {
    ifaddrs* found = nullptr;
    if (::getifaddrs(&found) != 0) throw SystemError("gloo: list network interfaces", errno);
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
    std::vector<Interface> interfaces;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
            const bool up = (one->ifa_flags & IFF_UP) != 0;
            if (!up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
            const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            const std::string address = numeric(one->ifa_addr, size);
            if (address.empty() || address.starts_with("fe80:")) continue;  // link-local: one link
            const bool loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
            interfaces.push_back({one->ifa_name, address, loopback});
        }
    }
    return interfaces;
}

std::string choose_address(const AddressChoice& choice, const std::vector<Interface>& interfaces) {
    if (choice.wanted_interface) {
        // A list is PyTorch's way to ask for several; one carries us.
        const std::string& wanted = *choice.wanted_interface;
        return address_of(wanted.substr(0, wanted.find(',')), interfaces);
    }
    if (choice.on_one_host) return "127.0.0.1";
    std::vector<Interface> outward;
    for (const Interface& one : interfaces) {  // of an interface with several, the first address
        const bool seen = std::any_of(outward.begin(), outward.end(), [&](const Interface& other) {
            return other.name == one.name;
        });
        if (!one.loopback && !seen) outward.push_back(one);
    }
    std::string route = choice.master ? address_towards(*choice.master) : std::string();
    if (!route.empty() && !is_loopback(route)) return route;
    if (outward.size() == 1) return outward.front().address;
    throw UsageError("cannot tell which network leads to the other hosts: " +
                     (choice.master ? "MASTER_ADDR " + choice.master->host +
                                          (route.empty() ? " has no route" : " is loopback here")
                                    : std::string("there is no MASTER_ADDR")) +
                     "; set DDP_SOCKET_IFNAME to one of: " + list_names(outward));
}

}  // namespace ddp::gloo
