// Strangers choose their addresses, of IPv6 more than can be counted: a full set of names begins
// anew, and the server's limit of lines holds in any case.
#include "store/admission/served_hosts.hpp"

#include <algorithm>

namespace ddp::store {

std::vector<std::string> ServedHosts::set(const std::vector<std::string>& addresses) {
    std::vector<std::string> unknown;
    hosts_.emplace();
    for (const std::string& text : addresses) {
        if (const auto address = base::numeric_address(text)) {
            hosts_->push_back(*address);
        } else {
            unknown.push_back(text);
        }
    }
    return unknown;
}

std::optional<std::string> ServedHosts::refusal(int connection) {
    if (!hosts_ && before_ == Before::all) return std::nullopt;
    const base::SocketAddress peer = base::address_of(connection, base::End::other);
    if (peer.family() == AF_UNSPEC) return "";
    if (hosts_ && std::any_of(hosts_->begin(), hosts_->end(),
                              [&](const auto& host) { return host.is_same_host(peer); })) {
        return std::nullopt;
    }
    const std::string name = peer.host();
    if (named_.size() >= most_named) named_.clear();
    if (!named_.insert(name).second) return "";
    return "refused " + name + ": " +
           (hosts_ ? "it is the address of no host of this job"
                   : "it is on another host, and all ranks are on this one");
}

}  // namespace ddp::store
