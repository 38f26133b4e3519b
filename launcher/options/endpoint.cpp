// Names are compared, never resolved: a name server that is slow must not slow a start.
#include "launcher/options/endpoint.hpp"

#include "base/net/address.hpp"
#include "base/net/own_addresses.hpp"
#include "base/net/socket.hpp"
#include "launcher/options/option_values.hpp"

#include <ddp/error.hpp>

namespace ddp::launcher {
namespace {

constexpr const char* loopback = "127.0.0.1";

}  // namespace

Endpoint parse_endpoint(const GivenValue& given) {
    constexpr const char* allowed = "HOST or HOST:PORT, an IPv6 address in brackets: [::1]:29500";
    const std::string& text = given.text;
    const bool bracketed = text.starts_with('[');
    const std::size_t host_end = bracketed ? text.find(']') : text.find(':');
    if (bracketed && host_end == text.npos) fail_value(given, allowed);
    Endpoint endpoint{bracketed ? text.substr(1, host_end - 1) : text.substr(0, host_end), {}};
    const std::string rest =
        host_end == text.npos ? "" : text.substr(host_end + (bracketed ? 1 : 0));
    if (endpoint.host.empty() || (!rest.empty() && rest.front() != ':')) fail_value(given, allowed);
    if (rest.empty()) return endpoint;
    const std::string port = rest.substr(1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != port.npos ||
        std::stoi(port) > 65535) {
        fail_value(given, allowed);
    }
    endpoint.port = static_cast<std::uint16_t>(std::stoi(port));
    return endpoint;
}

MetricsAddress parse_metrics_address(const GivenValue& given) {
    constexpr const char* allowed =
        "PORT, HOST:PORT, or unix:PATH with a path of at most 100 bytes";
    constexpr std::string_view unix = "unix:";
    constexpr std::size_t longest = 100;  // a socket's path may have 107
    if (given.text.starts_with(unix)) {
        MetricsAddress address{.path = given.text.substr(unix.size())};
        if (address.path.empty() || address.path.size() > longest) fail_value(given, allowed);
        return address;
    }
    const bool is_port = given.text.find_first_not_of("0123456789") == given.text.npos;
    std::string text = (is_port ? ":" : "") + given.text;
    if (text.starts_with(':')) text.insert(0, loopback);
    try {
        const Endpoint endpoint = parse_endpoint({given.label, text});
        if (endpoint.port) return {.host = endpoint.host, .port = *endpoint.port};
    } catch (const UsageError&) {  // which would show what was not given
    }
    fail_value(given, allowed);
}

bool is_this_host(const std::string& host) {
    if (host.empty()) return false;
    if (host == "localhost") return true;
    if (const auto address = base::numeric_address(host)) {
        return address->is_loopback() || base::OwnAddresses().contains(*address);
    }
    const std::string own = base::host_name();
    return !own.empty() &&
           (host == own || host.starts_with(own + ".") || own.starts_with(host + "."));
}

void resolve_endpoint(Options& options) {
    if (options.hosts.flags.standalone) {
        options.rendezvous.master_addr = loopback;
        options.rendezvous.master_port = 0;
        return;
    }
    const char* option = "--master-addr";
    if (!options.rendezvous.endpoint.empty()) {
        option = "--rdzv-endpoint";
        const GivenValue given{option, options.rendezvous.endpoint};
        const Endpoint endpoint = parse_endpoint(given);
        const bool fixed = options.rendezvous.backend == RendezvousBackend::fixed;
        if (fixed && !endpoint.port) {
            fail_value(given, "complete: --rdzv-backend=static needs HOST:PORT there");
        }
        options.rendezvous.master_addr = endpoint.host;
        options.rendezvous.master_port = endpoint.port.value_or(default_c10d_port);
    }
    if (options.rendezvous.agent_store == AgentStore::off) return;
    if (!is_this_host(options.rendezvous.master_addr)) {
        fail_value({option, options.rendezvous.master_addr},
                   "this host, where the launcher's store serves; leave the option out, say "
                   "--nnodes=N for a job of N hosts, or use --agent-store=off if rank 0 serves "
                   "there");
    }
    options.rendezvous.master_addr = loopback;
}

}  // namespace ddp::launcher
