#include "backends/gloo/make_gloo.hpp"

#include "backends/gloo/gloo_backend.hpp"
#include "backends/gloo/network_address.hpp"
#include "base/log.hpp"

#include <cstdlib>

namespace ddp::gloo {
namespace {

std::optional<std::string> wanted_interface() {
    for (const char* name : {"DDP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
        const char* value = std::getenv(name);
        if (value != nullptr && *value != '\0') return value;
    }
    return std::nullopt;
}

}  // namespace

std::string refusal_of_build() { return {}; }

std::unique_ptr<backends::Backend> make_backend(const Group& group,
                                                const base::Deadline& deadline) {
    if (group.ranks == 1) return std::make_unique<GlooBackend>(nullptr);
    const std::string address =
        choose_address({wanted_interface(), group.on_one_host, group.master}, list_interfaces());
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("backends", "gloo at " + address);
    }
    return std::make_unique<GlooBackend>(std::make_shared<Mesh>(group, address, deadline));
}

}  // namespace ddp::gloo
