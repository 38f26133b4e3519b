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
    std::string address;  // numeric; IPv6's link-local ones with %scope
    bool loopback = false;
    bool link_local = false;  // of one link: chosen only by name
};
// Those that are up, IPv4 addresses before IPv6 ones. Throws SystemError.
std::vector<Interface> list_interfaces();

// The address as in the list, which `text` writes in another way perhaps: in brackets, as an IPv4
// address inside an IPv6 one, without the %scope. Nothing where it is none of these, or loopback:
// no other host reaches that.
std::optional<std::string> find_outward_address(const std::string& text,
                                                const std::vector<Interface>& interfaces);

struct AddressChoice {
    std::optional<std::string> wanted_interface = {};  // DDP_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME
    bool on_one_host = true;                           // all ranks
    std::optional<MasterAddress> master = {};
    std::optional<std::string> host_address = {};  // DDP_HOST_ADDR; counts where it can be found
};
// The wanted interface's; else the launcher's address of this host; else loopback on one host; else
// the one that routes to the master, or, when the master's name means loopback here, the only other
// there is. Throws UsageError that names the interfaces to choose from.
std::string choose_address(const AddressChoice& choice, const std::vector<Interface>& interfaces);

}  // namespace ddp::gloo
