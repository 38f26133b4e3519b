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

bool share_a_group(const RankState& one, const RankState& other) {
    return std::ranges::any_of(one.record.groups, [&](const contract::GroupRecord& group) {
        const contract::GroupRecord* const same = other.record.find_group(group.id);
        return is_in(group) && same != nullptr && is_in(*same);
    });
}

std::vector<int> peers_of(const RankState& rank, std::span<const RankState> ranks) {
    std::vector<int> peers;
    for (const RankState& other : ranks) {
        const bool is_one = other.rank != rank.rank && counts(other) && share_a_group(rank, other);
        if (is_one) peers.push_back(other.rank);
    }
    return peers;
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
    if (!waits_for_all(operation.call.kind)) return;
    recorded += inside;
    in_calls += inside;
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

std::optional<CallShares::Stretch> CallShares::take_stretch(Time now,
                                                            std::span<const RankState> ranks) {
    const bool has_ended =
        now - begun_ >= least_time && accounts_.size() > 1 &&
        std::ranges::all_of(accounts_, [](const auto& account) {
            return account.second.recorded >= least_recorded && account.second.calls >= least_calls;
        });
    if (!has_ended) return std::nullopt;
    Stretch stretch{now - std::exchange(begun_, now), {}};
    for (const RankState& rank : ranks) {
        const auto account = accounts_.find(rank.rank);
        if (account == accounts_.end()) continue;
        Account& own = account->second;
        const double share = std::chrono::duration<double>(own.in_calls) /
                             std::chrono::duration<double>(own.recorded);
        own.clear();
        std::vector<int> peers = peers_of(rank, ranks);
        if (!peers.empty()) stretch.ranks.push_back({rank.rank, share, std::move(peers)});
    }
    return stretch;
}

}  // namespace ddp::launcher
