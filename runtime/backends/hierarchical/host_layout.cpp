#include "backends/hierarchical/host_layout.hpp"

#include <algorithm>
#include <bit>

namespace ddp::hierarchical {
namespace {

// Which of `count` things are for `index` of `among`, so that all get some where there are enough.
RankRange share_of(std::size_t index, std::size_t among, std::size_t count) {
    const auto first = [&](std::size_t i) { return (i * count + among - 1) / among; };
    return {first(index), first(index + 1) - first(index)};
}

}  // namespace

std::size_t middle_of_tree(std::size_t count) { return std::bit_floor(count - 1); }

std::vector<std::size_t> sizes_of_hosts(std::span<const std::string> host_of_rank) {
    std::vector<std::size_t> sizes;
    std::vector<std::string> seen;
    for (const std::string& host : host_of_rank) {
        if (!seen.empty() && seen.back() == host) {
            ++sizes.back();
            continue;
        }
        if (std::find(seen.begin(), seen.end(), host) != seen.end()) return {};
        seen.push_back(host);
        sizes.push_back(1);
    }
    return sizes;
}

HostLayout::HostLayout(const std::vector<std::size_t>& sizes, std::size_t rank)
    : rank_(rank), subtrees_(sizes.size()) {
    for (const std::size_t size : sizes) {
        hosts_.push_back({host_of_.size(), size});
        host_of_.insert(host_of_.end(), size, hosts_.size() - 1);
        most_columns_ = std::max(most_columns_, size);
    }
    for (std::size_t host = 0; host < hosts(); ++host) find_subtrees({0, ranks()}, host);
}

std::size_t HostLayout::helper(std::size_t host, std::size_t column, std::size_t columns) const {
    return hosts_[host].first + column * hosts_[host].count / columns;
}

RankRange HostLayout::columns_of(std::size_t host, std::size_t index, std::size_t columns) const {
    return share_of(index, hosts_[host].count, columns);
}

std::size_t HostLayout::helper_of(std::size_t host, std::size_t rank) const {
    return hosts_[host].first + index_of(rank) * hosts_[host].count / hosts_[host_of(rank)].count;
}

RankRange HostLayout::helped(std::size_t host, std::size_t index, std::size_t of) const {
    const RankRange share = share_of(index, hosts_[host].count, hosts_[of].count);
    return {hosts_[of].first + share.first, share.count};
}

void HostLayout::find_subtrees(RankRange tree, std::size_t host) {
    const RankRange here = hosts_[host];
    if (tree.end() <= here.first || here.end() <= tree.first) return;
    if (here.first <= tree.first && tree.end() <= here.end()) {
        subtrees_[host].push_back(tree);
        return;
    }
    const std::size_t middle = middle_of_tree(tree.count);
    find_subtrees({tree.first, middle}, host);
    find_subtrees({tree.first + middle, tree.count - middle}, host);
}

}  // namespace ddp::hierarchical
