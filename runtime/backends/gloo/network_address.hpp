// Which of this host's addresses the ranks talk through. Never the host name's: on Debian that is
// 127.0.1.1, which no other host can reach.
#pragma once

#include <ddp/master_address.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ddp::gloo {

struct Interface {
    std::string name;
    std::string address;  // numeric
    bool loopback = false;
};
// Those that are up, IPv4 addresses before IPv6 ones. Throws SystemError.
std::vector<Interface> list_interfaces();

struct AddressChoice {
    std::optional<std::string> wanted_interface;  // DDP_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME
    bool on_one_host = true;                      // all ranks
    std::optional<MasterAddress> master;
};
// The wanted interface's; else loopback on one host; else the one that routes to the master, or,
// when the master's name means loopback here, the only other there is. Throws UsageError that names
// the interfaces to choose from.
std::string choose_address(const AddressChoice& choice, const std::vector<Interface>& interfaces);

}  // namespace ddp::gloo
