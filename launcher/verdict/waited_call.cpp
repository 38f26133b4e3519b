#include "launcher/verdict/waited_call.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

using contract::GroupRecord;
using contract::OperationRecord;
using Time = Verdict::Time;

bool waits_elsewhere(const RankState& rank, std::uint32_t group) {
    return rank.record.waits_unrecorded ||
           std::ranges::any_of(rank.record.groups, [&](const GroupRecord& one) {
               return one.transfer || (one.id != group && one.is_waiting());
           });
}

void add_member(WaitedCall& call, const RankState& rank, const GroupRecord& group) {
    if (group.ended >= call.sequence) {
        call.beyond.push_back(&rank);
    } else if (group.is_waiting() && !rank.has_ended) {
        call.arrived.push_back(&rank);
    } else if (rank.has_ended || group.end != contract::GroupEnd::none) {
        call.gone.push_back(&rank);
    } else if (waits_elsewhere(rank, group.id)) {
        call.elsewhere.push_back(&rank);
    } else {
        call.missing.push_back(&rank);
    }
}

}  // namespace

Time middle_of(std::vector<Time> times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
}

std::map<std::uint32_t, std::vector<Member>> groups_of(std::span<const RankState> ranks) {
    std::map<std::uint32_t, std::vector<Member>> groups;
    for (const RankState& rank : ranks) {
        for (const GroupRecord& group : rank.record.groups) {
            groups[group.id].push_back({&rank, &group});
        }
    }
    std::erase_if(groups, [](const auto& entry) {
        const std::vector<Member>& members = entry.second;
        const int size = members.front().group->size;
        return std::cmp_greater(members.size(), size) ||
               std::ranges::any_of(members,
                                   [&](const Member& one) { return one.group->size != size; });
    });
    return groups;
}

bool waits(const RankState& rank) {
    if (rank.has_ended) return false;
    return rank.record.waits_unrecorded ||
           std::ranges::any_of(rank.record.groups, [](const GroupRecord& one) {
               return one.is_waiting() || one.transfer;
           });
}

std::vector<int> numbers_of(const RankStates& ranks) {
    std::vector<int> numbers;
    numbers.reserve(ranks.size());
    for (const RankState* const rank : ranks) numbers.push_back(rank->rank);
    std::ranges::sort(numbers);
    return numbers;
}

std::vector<int> all_who_wait(std::span<const RankState> ranks) {
    std::vector<int> numbers;
    for (const RankState& rank : ranks) {
        if (waits(rank)) numbers.push_back(rank.rank);
    }
    return numbers;
}

std::optional<WaitedCall> waited_call(const std::vector<Member>& members) {
    const std::uint32_t id = members.front().group->id;
    WaitedCall call{.group = id, .sequence = UINT64_MAX};
    for (const auto& [rank, group] : members) {
        if (group->is_waiting() && !rank->has_ended) {
            call.sequence = std::min(call.sequence, group->waits_in());
        }
    }
    if (call.sequence == UINT64_MAX) return std::nullopt;
    for (const auto& [rank, group] : members) add_member(call, *rank, *group);
    std::vector<Time> times;
    for (const RankState* const rank : call.arrived) {
        const OperationRecord* const operation = rank->record.find_operation(id, call.sequence);
        if (operation == nullptr) continue;
        times.push_back(operation->started);
        call.last_came = std::max(call.last_came, operation->started);
        if (call.call == nullptr) call.call = operation;
    }
    if (times.empty()) return std::nullopt;
    call.since = middle_of(std::move(times));
    call.on_gpu = members.front().group->on_gpu;
    call.all_are_known = std::cmp_equal(members.size(), members.front().group->size);
    return call;
}

Difference difference_of(const std::vector<OwnCall>& calls) {
    struct Party {
        const OperationRecord* call;
        RankStates ranks;
    };
    std::vector<Party> parties;
    Difference difference;
    for (const auto& [rank, own] : calls) {
        difference.last_started = std::max(difference.last_started, own->started);
        const auto same = std::ranges::find_if(
            parties, [call = own](const Party& party) { return party.call->call == call->call; });
        if (same != parties.end()) {
            same->ranks.push_back(rank);
        } else {
            parties.push_back({own, {rank}});
        }
    }
    if (parties.size() < 2) return difference;
    std::ranges::stable_sort(parties, {}, [](const Party& party) { return party.ranks.size(); });
    const std::size_t most = parties.back().ranks.size();
    const bool are_equal = parties.front().ranks.size() == most;
    for (const Party& party : parties) {
        if (are_equal || party.ranks.size() < most) {
            difference.to_blame.insert(difference.to_blame.end(), party.ranks.begin(),
                                       party.ranks.end());
        }
        difference.calls +=
            "\n  " + name_ranks(numbers_of(party.ranks)) + ": " + contract::describe(*party.call);
    }
    return difference;
}

}  // namespace ddp::launcher
