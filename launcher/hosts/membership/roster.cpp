#include "launcher/hosts/membership/roster.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ddp::launcher {

std::string rank_is_taken(const HostSize& size, const std::string& holder) {
    return "node rank " + std::to_string(*size.node_rank) + " of " + size.host + " is " + holder +
           "'s already; give each host its own --node-rank";
}

Roster::Member& Roster::add(const HostSize& size, Time may_join_at, Time now) {
    Member member{.size = size,
                  .contact = HostContact(now),
                  .arrival = ++arrivals_,
                  .may_join_at = may_join_at};
    if (holder_of_rank(member) != nullptr) member.waits_for_rank_since = now;
    return members_.insert_or_assign(size.member, std::move(member)).first->second;
}

std::string Roster::list() const {
    std::map<std::uint64_t, const HostSize*> order;  // by arrival
    for (const auto& [id, member] : members_) {
        if (member.size.slots > 0) order.emplace(member.arrival, &member.size);
    }
    std::string list;
    for (const auto& [arrival, size] : order) list += (list.empty() ? "" : ", ") + name_of(*size);
    return list.empty() ? "nobody" : list;
}

std::optional<std::string> Roster::refusal_of(const HostSize& size, int max_hosts) const {
    if (!size.node_rank) return std::nullopt;
    if (*size.node_rank < 0 || *size.node_rank >= max_hosts) {
        return "node rank " + std::to_string(*size.node_rank) + " of " + size.host +
               ": the job has " + std::to_string(max_hosts) +
               " hosts, so it is at least 0 and less than that";
    }
    for (const auto& [id, member] : members_) {
        if (member.size.node_rank != size.node_rank) continue;
        const bool may_wait = member.size.host == size.host && !member.waits_for_rank_since;
        if (!may_wait) return rank_is_taken(size, name_of(member.size));
    }
    return std::nullopt;
}

// The last one that came before it.
const Roster::Member* Roster::holder_of_rank(const Member& member) const {
    const Member* holder = nullptr;
    for (const auto& [id, other] : members_) {
        if (!member.size.node_rank || other.size.node_rank != member.size.node_rank) continue;
        if (other.arrival >= member.arrival) continue;
        if (holder == nullptr || other.arrival > holder->arrival) holder = &other;
    }
    return holder;
}

bool Roster::is_eligible(const Member& member, Time now) const {
    if (member.size.slots == 0 || member.may_join_at > now) return false;
    return !member.waits_for_rank_since || holder_of_rank(member) == nullptr;
}

std::vector<HostSize> Roster::eligible(const RankTable& last, Time now) const {
    std::vector<std::tuple<bool, std::uint64_t, const Member*>> order;
    for (const auto& [id, member] : members_) {
        if (!is_eligible(member, now)) continue;
        order.emplace_back(last.find(id) == nullptr, member.arrival, &member);
    }
    std::ranges::sort(order);
    std::vector<HostSize> hosts;
    hosts.reserve(order.size());
    for (const auto& entry : order) hosts.push_back(std::get<const Member*>(entry)->size);
    return hosts;
}

std::size_t Roster::count_eligible(Time now) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        members_, [&](const auto& entry) { return is_eligible(entry.second, now); }));
}

}  // namespace ddp::launcher
