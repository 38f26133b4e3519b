// What jobs of several hosts need: a name, an address, a port and a clock.
#include <ddp/error.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/net/own_addresses.hpp"
#include "base/net/socket.hpp"
#include "doctor/checks.hpp"

namespace ddp::doctor {
namespace {

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// "eth0 10.0.0.1, eth1 10.1.0.1": what other hosts could reach.
std::string outer_addresses() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return {};
    std::string text;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
        const int family = one->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        base::SocketAddress address;
        address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::copy_n(reinterpret_cast<const char*>(one->ifa_addr), address.size,
                    reinterpret_cast<char*>(&address.bytes));
        if (address.is_loopback() || address.is_link_local()) continue;
        text += (text.empty() ? "" : ", ") + std::string(one->ifa_name) + " " + address.host();
    }
    ::freeifaddrs(all);
    return text;
}

Finding look_at_name(const std::string& name) {
    const auto found = base::resolve(name, 0);
    const std::string quoted = "\"" + name + "\", this host's name,";
    if (found.addresses.empty()) {
        return {"network", Level::warn, quoted + " has no address: " + found.trouble,
                "for several hosts: /etc/hosts or DNS on all of them, or addresses in "
                "--rdzv-endpoint and --master-addr"};
    }
    if (std::ranges::all_of(found.addresses, &base::SocketAddress::is_loopback)) {
        return {"network", Level::warn,
                quoted + " is " + found.addresses.front().host() + ", which no other host reaches",
                "for several hosts: give it the host's own address in /etc/hosts (there often is "
                "a line with 127.0.1.1), or use addresses"};
    }
    base::OwnAddresses own;
    if (std::ranges::none_of(found.addresses, [&](const auto& one) { return own.contains(one); })) {
        return {"network", Level::warn,
                quoted + " is " + found.addresses.front().host() + ", which is no address of it",
                "for several hosts: correct the name's entry in /etc/hosts or DNS, or use "
                "addresses"};
    }
    return {"network", Level::ok, name + " is " + found.addresses.front().host()};
}

std::optional<std::pair<int, int>> ports_given_out(const std::string& root) {
    std::ifstream file(root + "/proc/sys/net/ipv4/ip_local_port_range");
    std::pair<int, int> range;
    if (file >> range.first >> range.second) return range;
    return std::nullopt;
}

// What the kernel keeps from them: a list such as "8080,9000-9100".
std::string reserved_ports(const std::string& root) {
    std::ifstream file(root + "/proc/sys/net/ipv4/ip_local_reserved_ports");
    std::string list;
    file >> list;
    return list;
}

bool contains(const std::string& list, std::uint16_t port) {
    std::istringstream parts(list);
    for (std::string part; std::getline(parts, part, ',');) {
        int first = 0, last = 0;
        const int read = std::sscanf(part.c_str(), "%d-%d", &first, &last);
        if (read == 1) last = first;
        if (read >= 1 && first <= port && port <= last) return true;
    }
    return false;
}

}  // namespace

Findings check_network() {
    Findings findings;
    try {
        const base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
        int error = 0;
        const auto soon = base::Deadline::after(std::chrono::seconds{5});
        const std::uint16_t port = base::local_port(listener.get());
        if (!base::try_connect_tcp("127.0.0.1", port, soon, error)) {
            throw SystemError("a connection", error);
        }
    } catch (const Error& error) {
        findings.push_back({"network", Level::fail,
                            std::string("nobody can be met on loopback: ") + error.what(),
                            "workers meet there; where lo is down: ip link set lo up"});
    }
    findings.push_back(look_at_name(host_name()));
    const std::string addresses = outer_addresses();
    if (addresses.empty()) {
        findings.push_back({"network", Level::note,
                            "no interface but loopback has an address: jobs of one host alone"});
    } else {
        findings.push_back({"network", Level::ok, addresses});
    }
    return findings;
}

Findings check_port(std::uint16_t port, const std::string& root) {
    Findings findings;
    const std::string name = "port " + std::to_string(port);
    try {
        base::listen_tcp_everywhere(port);
        findings.push_back({"port", Level::ok, name + " is free"});
    } catch (const SystemError& error) {
        const bool is_taken = error.code() == EADDRINUSE;
        findings.push_back({"port", Level::warn,
                            is_taken ? name + " is taken" : name + ": " + error.what(),
                            "jobs whose command lines name it need another one (--master-port, "
                            "--rdzv-endpoint); ss -ltnp tells who has it"});
    }
    const auto range = ports_given_out(root);
    const bool is_among = range && range->first <= port && port <= range->second;
    const std::string reserved = reserved_ports(root);
    if (is_among && !contains(reserved, port)) {
        findings.push_back(
            {"port", Level::warn,
             "the kernel gives " + name + " to any program that asks for a port (" +
                 std::to_string(range->first) + " to " + std::to_string(range->second) + ")",
             "sysctl net.ipv4.ip_local_reserved_ports=" + (reserved.empty() ? "" : reserved + ",") +
                 std::to_string(port)});
    }
    return findings;
}

Findings check_clock() {
    timex state{};
    const int answer = ::adjtimex(&state);
    if (answer < 0) return {{"clock", Level::note, "whether anybody keeps it right is not known"}};
    if (answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0) {
        return {{"clock", Level::ok, "kept right"}};
    }
    return {{"clock", Level::note, "nobody keeps it right",
             "only where logs of several hosts are compared: chrony or systemd-timesyncd"}};
}

}  // namespace ddp::doctor
