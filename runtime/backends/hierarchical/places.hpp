// What the schedules work with: who is where, and how to reach them.
#pragma once

#include "backends/gloo/mesh.hpp"
#include "backends/hierarchical/host_layout.hpp"
#include "backends/hierarchical/local_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

namespace ddp::hierarchical {

// By when the waits of one call are over. The ranks of a host wait for each other until the
// deadline, once, as the call begins; then it is another host that is waited for, and longer, so
// that a host that misses a rank has told the others who it is; and ranks that wait for one of
// their own host wait longest, as that one waits for another host.
class Patience {
public:
    explicit Patience(const gloo::WaitContext& call)
        : for_hosts_(call.deadline->later(std::chrono::milliseconds{300})),
          for_ranks_(call.deadline->later(std::chrono::milliseconds{900})),
          what_(call.what) {}
    Patience(const Patience&) = delete;
    Patience& operator=(const Patience&) = delete;

    gloo::WaitContext of_hosts() const { return {what_, &for_hosts_}; }
    gloo::WaitContext of_ranks() const { return {what_, &for_ranks_}; }

private:
    base::Deadline for_hosts_;
    base::Deadline for_ranks_;
    const std::string& what_;
};

struct Places {
    gloo::Mesh& mesh;
    LocalRanks& local;
    const HostLayout& layout;
    const Patience& patience;
};

// Elements of a buffer.
struct Share {
    std::size_t first = 0;
    std::size_t count = 0;
};

// The `index`th of `shares` even parts; the first ones take one more.
inline Share even_share(const Share& whole, std::size_t index, std::size_t shares) {
    const std::size_t each = whole.count / shares;
    const std::size_t longer = whole.count % shares;
    return {whole.first + index * each + std::min(index, longer), each + (index < longer ? 1 : 0)};
}

// What the rank with that index on that host carries of a chunk that is cut into columns.
inline Share region_of(const HostLayout& layout, const Share& chunk, std::size_t host,
                       std::size_t index) {
    const RankRange columns = layout.columns_of(host, index);
    const Share first = even_share(chunk, columns.first, layout.columns());
    const Share last = even_share(chunk, columns.end() - 1, layout.columns());
    return {first.first, last.first + last.count - first.first};
}

}  // namespace ddp::hierarchical
