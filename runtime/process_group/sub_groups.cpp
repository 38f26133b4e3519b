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
    for (const Member& member : members) ranks.push_back(member.rank);
    return ranks;
}

std::unique_ptr<ProcessGroup::Impl> join_members(ProcessGroup::Impl& parent,
                                                 const std::vector<int>& ranks,
                                                 const std::string& keys) {
    auto impl = std::make_unique<ProcessGroup::Impl>();
    impl->me = parent.me;
    const auto mine = std::find(ranks.begin(), ranks.end(), parent.me.rank);
    impl->me.rank = static_cast<int>(mine - ranks.begin());
    impl->me.world_size = static_cast<int>(ranks.size());
    if (parent.store) impl->store = make_prefix_store(keys, parent.store);
    impl->control = parent.control;
    impl->number = next_group_number();
    impl->timeout = parent.timeout;
    impl->insists_on_gpus = parent.insists_on_gpus;
    impl->reducers_with_turns = parent.reducers_with_turns;
    for (const int rank : ranks) {
        impl->job_ranks.push_back(parent.job_rank(rank));
    }
    impl->join(parent.device ? Backend::nccl : parent.backend->kind(),
               base::Deadline::after(parent.timeout));
    return impl;
}

std::optional<ProcessGroup> split_by(ProcessGroup& group, std::int64_t color, std::int64_t key,
                                     const CallSite& site) {
    ProcessGroup::Impl& parent = group.impl();
    const std::vector<int> ranks = ranks_of(exchange(group, color, key, site), color);
    const std::string keys =
        "split_" + std::to_string(parent.sub_groups++) + "/" + std::to_string(color);
    std::optional<ProcessGroup> made;
    if (color != no_color) made.emplace(join_members(parent, ranks, keys));
    group.barrier(site).wait();
    return made;
}

}  // namespace

ProcessGroup ProcessGroup::split(const SplitOptions& options, const CallSite& site) {
    if (options.color < 0) {
        throw UsageError("split: color " + std::to_string(options.color) +
                         " is negative; new_group makes groups without some of the ranks");
    }
    return *split_by(*this, options.color, options.key, site);
}

std::optional<ProcessGroup> ProcessGroup::new_group(std::span<const int> ranks,
                                                    const CallSite& site) {
    std::int64_t digest = 17;
    std::vector<bool> seen(static_cast<std::size_t>(size()), false);
    for (const int rank : ranks) {
        if (rank < 0 || rank >= size() || seen[static_cast<std::size_t>(rank)]) {
            throw UsageError("new_group: rank " + std::to_string(rank) + " of " + list(ranks) +
                             " comes twice or is not a rank of a group of " +
                             std::to_string(size()));
        }
        seen[static_cast<std::size_t>(rank)] = true;
        digest = (digest * 1'000'003 + rank) % 1'000'000'000'039;
    }
    const std::int64_t least = all_reduce(digest, ReduceOp::min, site);
    if (all_reduce(digest, ReduceOp::max, site) != least) {
        throw UsageError("new_group: the ranks do not all give the same list; this rank gives " +
                         list(ranks));
    }
    const auto mine = std::find(ranks.begin(), ranks.end(), rank());
    const bool member = mine != ranks.end();
    return split_by(*this, member ? 0 : no_color, mine - ranks.begin(), site);
}

}  // namespace ddp
