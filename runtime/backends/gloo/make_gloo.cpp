#include "backends/gloo/make_gloo.hpp"

#include "backends/gloo/gloo_backend.hpp"
#include "backends/gloo/network_address.hpp"
#include "backends/gloo/transport/connect.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <mutex>

namespace ddp::gloo {
namespace {

std::optional<std::string> first_of(std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const char* value = std::getenv(name);
        if (value != nullptr && *value != '\0') return value;
    }
    return std::nullopt;
}

// An outer job's variable, or that of a host whose container this is, does not end a job that finds
// its network without it.
void warn_once_of(const std::string& host_address) {
    static std::once_flag warned;
    std::call_once(warned, [&] {
        base::log_warn("backends", "gloo: DDP_HOST_ADDR " + host_address +
                                       " is no address of this host that others could reach; its "
                                       "network is chosen as without it");
    });
}

// UCX takes an interface's first IPv4 address, and no other; an alias ("eth0:1") is none for it.
Network network_at(const std::string& address, const std::vector<Interface>& interfaces) {
    const auto at = std::find_if(interfaces.begin(), interfaces.end(),
                                 [&](const Interface& one) { return one.address == address; });
    const auto has_colon = [](const std::string& text) { return text.find(':') != text.npos; };
    if (at == interfaces.end() || has_colon(address) || has_colon(at->name)) return {address, ""};
    const auto first = std::find_if(interfaces.begin(), interfaces.end(),
                                    [&](const Interface& one) { return one.name == at->name; });
    return {address, first == at ? at->name : ""};
}

}  // namespace

std::string refusal_of_build() { return {}; }

std::shared_ptr<Mesh> connect_mesh(const Group& group, const base::Deadline& deadline) {
    const std::vector<Interface> interfaces = list_interfaces();
    const AddressChoice choice{
        .wanted_interface = first_of({"DDP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}),
        .on_one_host = group.on_one_host,
        .master = group.master,
        .host_address = first_of({"DDP_HOST_ADDR"})};
    if (!choice.wanted_interface && choice.host_address &&
        !find_outward_address(*choice.host_address, interfaces)) {
        warn_once_of(*choice.host_address);
    }
    const std::string address = choose_address(choice, interfaces);
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("backends", "gloo at " + address);
    }
    return std::make_shared<Mesh>(group, network_at(address, interfaces), deadline);
}

std::unique_ptr<backends::Backend> make_backend(const Group& group,
                                                const base::Deadline& deadline) {
    return std::make_unique<GlooBackend>(group.ranks == 1 ? nullptr
                                                          : connect_mesh(group, deadline));
}

}  // namespace ddp::gloo
