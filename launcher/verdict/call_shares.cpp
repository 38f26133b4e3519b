#include "launcher/verdict/call_shares.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

bool waits_for_all(contract::Collective kind) {
    switch (kind) {
        case contract::Collective::all_reduce:
        case contract::Collective::all_gather:
        case contract::Collective::reduce_scatter:
        case contract::Collective::all_to_all:
        case contract::Collective::barrier:
            return true;
        default:
            return false;
    }
}

bool counts(const contract::GroupRecord& group) {
    return group.end == contract::GroupEnd::none && !group.on_gpu && group.size > 1;
}

// It does what only some ranks do.
bool is_apart(const RankState& rank) {
    const contract::RankRecord& record = rank.record;
    return record.is_at_checkpoint || record.waits_unrecorded ||
           std::ranges::any_of(record.groups, [](const contract::GroupRecord& group) {
               return group.transfer.has_value();
           });
}

const RankState* find(std::span<const RankState> ranks, int rank) {
    const auto found = std::ranges::find(ranks, rank, &RankState::rank);
    return found == ranks.end() || found->has_ended ? nullptr : &*found;
}

}  // namespace

void CallShares::note(Time now, std::span<const RankState> ranks) {
    forget_who_left(ranks);
    const bool any_apart = std::ranges::any_of(ranks, is_apart);
    for (const RankState& rank : ranks) {
        if (rank.has_ended) continue;
        std::uint64_t& seen = seen_[rank.rank];
        for (const contract::OperationRecord& operation : rank.record.operations) {
            if (operation.serial <= seen) continue;
            if (!operation.ended) break;  // and what comes after it, in its turn
            seen = operation.serial;
            const contract::GroupRecord* const group = rank.record.find_group(operation.group);
            if (group == nullptr || !counts(*group)) continue;
            Group& known = groups_.try_emplace(group->id, Group{now, {}}).first->second;
            add(operation, known.members[rank.rank]);
        }
    }
    if (!any_apart) return;
    for (auto& [id, group] : groups_) {
        group.begun = now;
        for (auto& [rank, member] : group.members) member = Member{.sequence = member.sequence};
    }
}

// Of calls that overlap each moment counts once.
void CallShares::add(const contract::OperationRecord& operation, Member& member) {
    const bool follows = operation.sequence == member.sequence + 1;
    member.sequence = operation.sequence;
    const Time ended = std::max(*operation.ended, operation.started);
    if (!follows || !member.last_ended) {
        member.last_ended = ended;
        return;
    }
    const Time before =
        std::exchange(member.last_ended, std::max(*member.last_ended, ended)).value();
    const Duration computed = std::max(operation.started - before, Duration(0));
    member.recorded += computed;
    if (!waits_for_all(operation.call.kind)) return;
    const Duration inside = std::max(ended - std::max(operation.started, before), Duration(0));
    member.recorded += inside;
    member.in_calls += inside;
    ++member.calls;
}

void CallShares::forget_who_left(std::span<const RankState> ranks) {
    for (auto& [id, group] : groups_) {
        std::erase_if(group.members, [&, id = id](const auto& member) {
            const RankState* const rank = find(ranks, member.first);
            const auto* const record = rank == nullptr ? nullptr : rank->record.find_group(id);
            return record == nullptr || !counts(*record);
        });
    }
    std::erase_if(groups_, [](const auto& group) { return group.second.members.empty(); });
}

std::vector<CallShares::Stretch> CallShares::take_stretches(Time now) {
    std::vector<Stretch> stretches;
    for (auto& [id, group] : groups_) {
        const bool has_ended = now - group.begun >= least_time && group.members.size() > 1 &&
                               std::ranges::all_of(group.members, [](const auto& member) {
                                   return member.second.recorded >= least_recorded &&
                                          member.second.calls >= least_calls;
                               });
        if (!has_ended) continue;
        Stretch& stretch = stretches.emplace_back(Stretch{id, now - group.begun, {}});
        for (auto& [rank, member] : group.members) {
            const double share = std::chrono::duration<double>(member.in_calls) /
                                 std::chrono::duration<double>(member.recorded);
            stretch.ranks.push_back({.rank = rank, .in_calls = share});
            member.recorded = member.in_calls = Duration(0);
            member.calls = 0;
        }
        group.begun = now;
    }
    return stretches;
}

}  // namespace ddp::launcher
