// Stands in for UCX in a build without libucp.
#include "backends/gloo/transport/ucx_start.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

namespace ddp::gloo {

std::unique_ptr<UcxStart> start_ucx(const std::string&) {
    throw BackendError("ucx", 0,
                       "ddp " + std::string(version()) + " is built without it (libucx-dev was " +
                           "missing, or DDP_WITH_UCX was OFF)");
}

}  // namespace ddp::gloo
