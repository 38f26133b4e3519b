// Where workers meet: --master-addr, --master-port and --rdzv-endpoint, brought together for a job
// on one host. The address of this host, however it is spelled, becomes 127.0.0.1 where the
// launcher serves, since its store listens there alone.
#pragma once

#include "launcher/options/option_table.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launcher {

struct Endpoint {
    std::string host;
    std::optional<std::uint16_t> port;
};

// torchrun's: of an endpoint of backend c10d without one, and of several hosts otherwise.
inline constexpr std::uint16_t default_c10d_port = 29400;
inline constexpr std::uint16_t default_static_port = 29500;

// "host", "host:port", "[::1]:port", "[fe80::1%eth0]:port"
Endpoint parse_endpoint(const GivenValue& given);

// "9400", ":9400", "host:9400", "[::1]:9400", "unix:PATH"; loopback, unless it says otherwise.
MetricsAddress parse_metrics_address(const GivenValue& given);

// Loopback, this host's name (also with a domain after it), or an address of its interfaces,
// however it is spelled. A link-local address without %scope may be that of any interface.
bool is_this_host(const std::string& host);

// Throws UsageError for an address that this job cannot use.
void resolve_endpoint(Options& options);

}  // namespace ddp::launcher
