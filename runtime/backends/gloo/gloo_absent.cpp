// Stands in for the rest of this folder in a build without libgloo.
#include "backends/gloo/make_gloo.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

namespace ddp::gloo {

std::string refusal_of_build() {
    return "ddp " + std::string(version()) + " is built without it (libgloo-dev was missing, or " +
           "DDP_WITH_GLOO was OFF)";
}

std::unique_ptr<backends::Backend> make_backend(const Group&, const base::Deadline&) {
    throw UsageError(refusal_of_build());
}

}  // namespace ddp::gloo
