// Which library connects the ranks of a mesh: the same on all of them.
#pragma once

#include "backends/gloo/make_gloo.hpp"
#include "backends/gloo/transport/transport.hpp"

#include <functional>
#include <memory>
#include <string>

namespace ddp::gloo {

// Of this rank.
struct Network {
    std::string address;        // numeric
    std::string ucx_interface;  // the network interface it is of, where UCX would take that address
};

// Collective: between hosts UCX where all ranks can, else Gloo; or what DDP_HOST_TRANSPORT says.
// `has_trouble` is called from any thread that waits. Throws UsageError, TimeoutError,
// BackendError.
std::unique_ptr<Transport> connect_transport(const Group& group, const Network& network,
                                             const base::Deadline& deadline,
                                             std::function<bool()> has_trouble);

}  // namespace ddp::gloo
