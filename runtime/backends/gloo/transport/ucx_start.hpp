// The door to UCX. Two sources stand behind it: ucx_transport.cpp, or ucx_absent.cpp in a build
// without libucp.
#pragma once

#include "backends/gloo/transport/transport.hpp"
#include "base/deadline.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::gloo {

// This rank's half of a connection, before the other ranks' addresses are known.
class UcxStart {
public:
    virtual ~UcxStart() = default;
    virtual std::string address() const = 0;       // binary
    virtual std::string wire_version() const = 0;  // must be the same on all ranks
    // Collective; once. By rank. Throws BackendError that names a rank.
    virtual std::unique_ptr<Transport> connect(int rank, std::vector<PeerProcess> processes,
                                               const std::vector<std::string>& addresses,
                                               const base::Deadline& deadline,
                                               std::function<bool()> has_trouble) = 0;
};

// On a network interface of this host. Throws BackendError: why there is no UCX.
std::unique_ptr<UcxStart> start_ucx(const std::string& interface);

}  // namespace ddp::gloo
