#include "backends/gloo/network_address.hpp"

#include "base/net/address.hpp"
#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace ddp::gloo {
namespace {

base::SocketAddress socket_address(const sockaddr* from) {
    base::SocketAddress address;
    address.size = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.bytes, from, address.size);
    return address;
}

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

std::string list_names(const std::vector<Interface>& interfaces) {
    std::string names;
    for (const Interface& one : interfaces) {
        if (one.link_local) continue;
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
        return base::local_address(fd.get()).host();
    }
    return {};
}

std::string address_of(const std::string& name, const std::vector<Interface>& interfaces) {
    const auto found =
        std::find_if(interfaces.begin(), interfaces.end(),
                     [&](const Interface& one) { return one.name == name && !one.link_local; });
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
            const base::SocketAddress address = socket_address(one->ifa_addr);
            const bool loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
            if (address.host().empty()) continue;
            interfaces.push_back(
                {one->ifa_name, address.host(), loopback, address.is_link_local()});
        }
    }
    return interfaces;
}

std::optional<std::string> find_outward_address(const std::string& text,
                                                const std::vector<Interface>& interfaces) {
    const auto address = base::numeric_address(base::without_brackets(text));
    if (!address || address->is_loopback()) return std::nullopt;
    const std::string wanted = address->host();
    const bool of_any_link = address->is_link_local() && wanted.find('%') == wanted.npos;
    for (const Interface& one : interfaces) {
        const std::size_t scope = of_any_link ? one.address.find('%') : one.address.npos;
        if (one.address.substr(0, scope) == wanted) return one.address;
    }
    return std::nullopt;
}

std::string choose_address(const AddressChoice& choice, const std::vector<Interface>& interfaces) {
    if (choice.wanted_interface) {
        // A list is PyTorch's way to ask for several; one carries us.
        const std::string& wanted = *choice.wanted_interface;
        return address_of(wanted.substr(0, wanted.find(',')), interfaces);
    }
    if (choice.host_address) {
        if (auto own = find_outward_address(*choice.host_address, interfaces)) return *own;
    }
    if (choice.on_one_host) return "127.0.0.1";
    std::vector<Interface> outward;
    for (const Interface& one : interfaces) {  // of an interface with several, the first address
        const bool seen = std::any_of(outward.begin(), outward.end(), [&](const Interface& other) {
            return other.name == one.name;
        });
        if (!one.loopback && !one.link_local && !seen) outward.push_back(one);
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
