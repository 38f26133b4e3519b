// The CPU backends that this build has. Its target says whether Gloo is one: HAS_GLOO, 0 or 1.
#pragma once

#include <ddp/process_group.hpp>

#include <vector>

namespace ddp::testing {

inline std::vector<InitOptions> host_backends() {
    std::vector<InitOptions> all{{.backend = Backend::shm}};
    if (HAS_GLOO) all.push_back({.backend = Backend::gloo});
    return all;
}

}  // namespace ddp::testing
