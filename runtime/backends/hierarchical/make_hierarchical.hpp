// The door to the hierarchical backend, as make_gloo.hpp is to Gloo, which it needs.
#pragma once

#include "backends/backend.hpp"
#include "backends/gloo/make_gloo.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace ddp::hierarchical {

// `host_sizes`: how many ranks each host has, in the order of the ranks (sizes_of_hosts). `local`:
// of the ranks of this host. Collective. Throws as gloo::make_backend.
std::unique_ptr<backends::Backend> make_backend(const gloo::Group& group,
                                                const std::vector<std::size_t>& host_sizes,
                                                std::unique_ptr<backends::Backend> local,
                                                const base::Deadline& deadline);

}  // namespace ddp::hierarchical
