#include "backends/hierarchical/make_hierarchical.hpp"

#include "backends/gloo/mesh.hpp"
#include "backends/hierarchical/hierarchical_backend.hpp"

#include <utility>

namespace ddp::hierarchical {

std::unique_ptr<backends::Backend> make_backend(const gloo::Group& group,
                                                const std::vector<std::size_t>& host_sizes,
                                                std::unique_ptr<backends::Backend> local,
                                                const base::Deadline& deadline) {
    return std::make_unique<HierarchicalBackend>(
        gloo::connect_mesh(group, deadline), std::move(local),
        HostLayout(host_sizes, static_cast<std::size_t>(group.rank)));
}

}  // namespace ddp::hierarchical
