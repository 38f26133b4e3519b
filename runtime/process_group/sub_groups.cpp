// Groups of some of a group's ranks. They meet through the same store under keys of their own; the
// whole group goes on only when they have, so that whoever serves the store is still there.
#include "process_group/process_group_impl.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>

namespace ddp {
namespace {

constexpr std::int64_t no_color = -1;

struct Member {
    std::int64_t color;
    std::int64_t key;
    int rank;  // in the parent
};

std::string list(std::span<const int> ranks) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return "{" + text + "}";
}

std::vector<Member> exchange(ProcessGroup& group, std::int64_t color, std::int64_t key,
                             const CallSite& site) {
    std::array<std::int64_t, 2> mine{color, key};
    std::vector<std::int64_t> all(2 * static_cast<std::size_t>(group.size()));
    group.all_gather(mine, all, Stream{}, site).wait();
    std::vector<Member> members;
    for (int rank = 0; rank < group.size(); ++rank) {
        const std::size_t at = 2 * static_cast<std::size_t>(rank);
        members.push_back({all[at], all[at + 1], rank});
    }
    return members;
}

// The ranks of this color, by key, then by rank.
std::vector<int> ranks_of(std::vector<Member> members, std::int64_t color) {
    std::erase_if(members, [&](const Member& member) { return member.color != color; });
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.key < b.key; });
    std::vector<int> ranks;
    ranks.reserve(members.size());
    for (const Member& member : members) ranks.push_back(member.rank);
    return ranks;
}

// What some of the ranks ask for: they may be on one host, or on one each.
Backend backend_of_some(Backend of_all) {
    return of_all == Backend::hierarchical ? Backend::automatic : of_all;
}

}  // namespace

ProcessGroup::Impl::Impl(const Impl& parent, std::span<const int> ranks, const std::string& keys,
                         const base::Deadline& deadline,
                         std::shared_ptr<backends::SharedResources> shared)
    : member_(parent.member_, ranks, keys),
      store_(parent.store_ ? make_prefix_store(keys, parent.store_) : nullptr),
      reducers_(parent.reducers_.with_logical_ranks()),
      dispatch_(member_, store_.get(),
                {.wanted = backend_of_some(parent.dispatch_.kind()),
                 .timeout = parent.dispatch_.options().timeout,
                 .requires_gpus = parent.dispatch_.options().requires_gpus,
                 .cpu_only = parent.dispatch_.kind() == Backend::hierarchical},
                reducers_.held(), deadline, std::move(shared)) {}

std::optional<ProcessGroup> ProcessGroup::split_by(std::int64_t color, std::int64_t key,
                                                   const CallSite& site) {
    const std::vector<int> ranks = ranks_of(exchange(*this, color, key, site), color);
    const std::string keys =
        "split_" + std::to_string(impl_->count_split()) + "/" + std::to_string(color);
    // new_group makes one group alone: the next number is free for those who are not in it.
    const int number = color == no_color ? 1 : static_cast<int>(color);
    const auto own = std::ranges::find(ranks, rank());
    auto shared = impl_->dispatch().split({number, static_cast<int>(own - ranks.begin())}, site);
    std::optional<ProcessGroup> made;
    if (color != no_color) {
        made.emplace(std::make_unique<Impl>(*impl_, ranks, keys, base::Deadline::after(timeout()),
                                            std::move(shared)));
    }
    barrier(site).wait();
    return made;
}

ProcessGroup ProcessGroup::split(const SplitOptions& options, const CallSite& site) {
    if (options.color < 0) {
        throw UsageError("split: color " + std::to_string(options.color) +
                         " is negative; new_group makes groups without some of the ranks");
    }
    return *split_by(options.color, options.key, site);
}

namespace {

// Of a list of a group's ranks, which none of them may be in twice. Throws UsageError.
std::int64_t digest_of(std::span<const int> ranks, int size) {
    std::int64_t digest = 17;
    std::vector<bool> seen(static_cast<std::size_t>(size), false);
    for (const int rank : ranks) {
        if (rank < 0 || rank >= size || seen[static_cast<std::size_t>(rank)]) {
            throw UsageError("new_group: rank " + std::to_string(rank) + " of " + list(ranks) +
                             " comes twice or is not a rank of a group of " + std::to_string(size));
        }
        seen[static_cast<std::size_t>(rank)] = true;
        digest = (digest * 1'000'003 + rank) % 1'000'000'000'039;
    }
    return digest;
}

}  // namespace

std::optional<ProcessGroup> ProcessGroup::new_group(std::span<const int> ranks,
                                                    const CallSite& site) {
    const std::int64_t digest = digest_of(ranks, size());
    const std::int64_t least = all_reduce(digest, ReduceOp::min, site);
    if (all_reduce(digest, ReduceOp::max, site) != least) {
        throw UsageError("new_group: the ranks do not all give the same list; this rank gives " +
                         list(ranks));
    }
    const auto mine = std::find(ranks.begin(), ranks.end(), rank());
    const bool member = mine != ranks.end();
    return split_by(member ? 0 : no_color, mine - ranks.begin(), site);
}

}  // namespace ddp
