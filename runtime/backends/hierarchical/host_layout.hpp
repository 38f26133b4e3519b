// Where the ranks of a group are: the ranks of each host follow each other. Pure.
//
// What travels between hosts is cut into columns, at most as many as the largest host has ranks. On
// each host a column has one rank that carries it, its helper, so that the ranks of a host share
// the work; a rank of a smaller host carries several, which follow each other.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ddp::hierarchical {

struct RankRange {
    std::size_t first = 0;
    std::size_t count = 0;

    std::size_t end() const { return first + count; }
    bool operator==(const RankRange&) const = default;
};

// Below that a column is not worth its messages: with one for each of four ranks that share two
// cores 1 MiB took four times as long. The same on all ranks; tests make it less.
inline std::size_t least_column_bytes = 1 << 20;

// How many ranks each host has, in the order of the ranks, whose hosts are given. Empty: the ranks
// of a host do not follow each other.
std::vector<std::size_t> sizes_of_hosts(std::span<const std::string> host_of_rank);

class HostLayout {
public:
    HostLayout(const std::vector<std::size_t>& sizes, std::size_t rank);

    std::size_t ranks() const { return host_of_.size(); }
    std::size_t hosts() const { return hosts_.size(); }
    std::size_t most_columns() const { return most_columns_; }
    RankRange host(std::size_t number) const { return hosts_[number]; }
    std::size_t host_of(std::size_t rank) const { return host_of_[rank]; }
    std::size_t index_of(std::size_t rank) const { return rank - hosts_[host_of_[rank]].first; }

    std::size_t rank() const { return rank_; }
    std::size_t my_host() const { return host_of_[rank_]; }
    std::size_t my_index() const { return index_of(rank_); }
    RankRange mine() const { return hosts_[my_host()]; }
    bool is_here(std::size_t rank) const { return host_of_[rank] == my_host(); }

    // The rank of that host that carries the column, one of so many.
    std::size_t helper(std::size_t host, std::size_t column, std::size_t columns) const;
    // The columns that the rank with that index among its host's carries.
    RankRange columns_of(std::size_t host, std::size_t index, std::size_t columns) const;
    // The rank of that host that carries what belongs to `rank`, which may be elsewhere.
    std::size_t helper_of(std::size_t host, std::size_t rank) const;
    // The ranks of host `of` that the rank with that index on `host` is the helper of.
    RankRange helped(std::size_t host, std::size_t index, std::size_t of) const;

    // The largest subtrees of the balanced tree over all ranks whose ranks are all on that host, in
    // their order: only their sums leave it.
    const std::vector<RankRange>& subtrees(std::size_t host) const { return subtrees_[host]; }

private:
    void find_subtrees(RankRange tree, std::size_t host);

    std::size_t rank_;
    std::vector<RankRange> hosts_;
    std::vector<std::size_t> host_of_;  // by rank
    std::size_t most_columns_ = 0;
    std::vector<std::vector<RankRange>> subtrees_;  // by host
};

// The balanced tree over so many inputs splits before this one (backends/reduction/reduce.hpp).
std::size_t middle_of_tree(std::size_t count);

}  // namespace ddp::hierarchical
