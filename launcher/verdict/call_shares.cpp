#include "launcher/verdict/call_shares.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

// Nobody computes for longer between two calls; whatever a page says.
constexpr std::chrono::hours longest{1};

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

bool is_in(const contract::GroupRecord& group) {
    return group.end == contract::GroupEnd::none && group.size > 1;
}

// In a group, and in none on a GPU.
bool counts(const RankState& rank) {
    const auto& groups = rank.record.groups;
    return !rank.has_ended && std::ranges::any_of(groups, is_in) &&
           std::ranges::none_of(groups, &contract::GroupRecord::on_gpu);
}

// It does what only some ranks do.
bool is_apart(const RankState& rank) {
    const contract::RankRecord& record = rank.record;
    return record.is_at_checkpoint || record.waits_unrecorded ||
           std::ranges::any_of(record.groups, [](const contract::GroupRecord& group) {
               return group.transfer.has_value();
           });
}

}  // namespace

// Of calls that overlap each moment counts once.
void CallShares::Account::add(const contract::OperationRecord& operation, Time resumed) {
    const bool follows = operation.serial == seen + 1;
    seen = operation.serial;
    const Time ended = std::max(*operation.ended, operation.started);
    if (!follows || !last_ended || operation.started < resumed) {
        last_ended = ended;
        return;
    }
    const Time before = *last_ended;
    last_ended = std::max(before, ended);
    const Duration computed = std::max(operation.started - before, Duration(0));
    const Duration inside = std::max(ended - std::max(operation.started, before), Duration(0));
    if (computed > longest || inside > longest) return;
    recorded += computed;
    longest_computed = std::max(longest_computed, computed);
    if (!waits_for_all(operation.call.kind)) return;
    recorded += inside;
    in_calls += inside;
    longest_call = std::max(longest_call, inside);
    ++calls;
}

void CallShares::Account::clear() { *this = {.seen = seen, .last_ended = last_ended}; }

void CallShares::note(Time now, std::span<const RankState> ranks, Time resumed) {
    for (const RankState& rank : ranks) {
        if (!counts(rank)) {
            accounts_.erase(rank.rank);
            continue;
        }
        Account& account = accounts_[rank.rank];
        for (const contract::OperationRecord& operation : rank.record.operations) {
            if (operation.serial <= account.seen) continue;
            if (!operation.ended) break;  // and what comes after it, in its turn
            account.add(operation, resumed);
        }
    }
    if (begun_ != Time{} && std::ranges::none_of(ranks, is_apart)) return;
    begun_ = now;
    for (auto& [rank, account] : accounts_) {
        account.clear();
        account.last_ended.reset();
    }
}

std::optional<Paces> CallShares::take_paces(Time now, std::span<const RankState> ranks) {
    const bool has_ended =
        now - begun_ >= least_time && !accounts_.empty() &&
        std::ranges::all_of(accounts_, [](const auto& account) {
            return account.second.recorded >= least_recorded && account.second.calls >= least_calls;
        });
    if (!has_ended) return std::nullopt;
    Paces paces{.time = now - std::exchange(begun_, now)};
    for (const RankState& rank : ranks) {
        const auto account = accounts_.find(rank.rank);
        if (account == accounts_.end()) continue;
        Account& own = account->second;
        RankPace& pace = paces.ranks.emplace_back();
        pace.rank = rank.rank;
        pace.pid = rank.record.pid;
        const Duration in_others = own.in_calls - own.longest_call;
        const Duration left_out = own.longest_call + own.longest_computed;
        const Duration recorded = std::max(own.recorded - left_out, Duration(1));
        pace.in_calls =
            std::chrono::duration<double>(in_others) / std::chrono::duration<double>(recorded);
        for (const contract::GroupRecord& group : rank.record.groups) {
            if (is_in(group)) pace.groups.push_back(group.id);
        }
        own.clear();
    }
    return paces;
}

}  // namespace ddp::launcher
