// What the schedules work with: who is where, and how to reach them.
#pragma once

#include "backends/gloo/mesh.hpp"
#include "backends/gloo/shares.hpp"
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

using gloo::even_share;
using gloo::Share;

// A chunk of a tensor, and into how many columns it is cut.
struct Cut {
    Share whole;
    std::size_t columns = 1;

    static Cut of(const HostLayout& layout, const Share& whole, std::size_t element_bytes) {
        return {whole, std::clamp<std::size_t>(whole.count * element_bytes / least_column_bytes, 1,
                                               layout.most_columns())};
    }
    Share column(std::size_t number) const { return even_share(whole, number, columns); }
    // What the rank with that index on that host carries.
    Share region(const HostLayout& layout, std::size_t host, std::size_t index) const {
        const RankRange mine = layout.columns_of(host, index, columns);
        Share region{mine.first == 0 ? whole.first : column(mine.first - 1).end(), 0};
        for (std::size_t i = mine.first; i < mine.end(); ++i) region.count += column(i).count;
        return region;
    }
};

}  // namespace ddp::hierarchical
