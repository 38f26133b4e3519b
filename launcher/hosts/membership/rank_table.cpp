#include "launcher/hosts/membership/rank_table.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace ddp::launcher {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits that the text begins with, without zeros before them.
std::string_view take_number(std::string_view& text) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    std::string_view digits = text.substr(0, end);
    text.remove_prefix(end);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
}

bool comes_first(const HostSize& a, const HostSize& b) {
    if (a.is_endpoint != b.is_endpoint) return a.is_endpoint;
    if (a.host != b.host) return is_before_in_natural_order(a.host, b.host);
    if (a.started_ns != b.started_ns) return a.started_ns < b.started_ns;
    return a.member < b.member;
}

using Order = std::vector<const HostSize*>;

Order in_natural_order(std::span<const HostSize> hosts) {
    Order order;
    for (const HostSize& host : hosts) order.push_back(&host);
    std::ranges::sort(order, [](const auto* a, const auto* b) { return comes_first(*a, *b); });
    return order;
}

// Places that the other hosts leave, null where nobody has asked for one.
Order places_asked_for(std::span<const HostSize> hosts) {
    Order places(hosts.size());
    for (const HostSize& host : hosts) {
        if (!host.node_rank) continue;
        const int rank = *host.node_rank;
        if (rank < 0) {
            throw UsageError("node rank " + std::to_string(rank) + " of " + host.host +
                             ": it is at least 0");
        }
        if (std::cmp_greater_equal(rank, hosts.size())) continue;
        const HostSize*& place = places[static_cast<std::size_t>(rank)];
        if (place != nullptr) {
            throw UsageError("node rank " + std::to_string(rank) + " is asked for by " +
                             place->host + " and by " + host.host +
                             "; give each host its own --node-rank");
        }
        place = &host;
    }
    return places;
}

RankTable number(const Order& order) {
    RankTable table;
    std::map<std::string_view, int> roles;
    for (const HostSize* host : order) {
        table.hosts.push_back({.member = host->member,
                               .host = host->host,
                               .address = host->address,
                               .group_rank = static_cast<int>(table.hosts.size()),
                               .first_rank = table.world_size,
                               .slots = host->slots,
                               .first_role_rank = roles[host->role],
                               .port = host->port});
        table.world_size += host->slots;
        roles[host->role] += host->slots;
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
        table.hosts[i].role_world_size = roles[order[i]->role];
    }
    return table;
}

}  // namespace

std::string name_of(const HostSize& size) {
    return size.host + (size.address.empty() ? "" : " (" + size.address + ")");
}

const HostRanks* RankTable::find(MemberId member) const {
    const auto found = std::ranges::find(hosts, member, &HostRanks::member);
    return found == hosts.end() ? nullptr : &*found;
}

const HostRanks* RankTable::host_of(int rank) const {
    const auto found =
        std::ranges::find_if(hosts, [&](const HostRanks& host) { return host.has(rank); });
    return found != hosts.end() ? &*found : nullptr;
}

std::string RankTable::describe(int rank) const {
    const HostRanks* const host = host_of(rank);
    return "rank " + std::to_string(rank) + (host != nullptr ? " on host " + host->host : "");
}

std::vector<std::string> RankTable::addresses() const {
    std::vector<std::string> all;
    for (const HostRanks& host : hosts) {
        if (!host.address.empty()) all.push_back(host.address);
    }
    return all;
}

bool is_before_in_natural_order(std::string_view a, std::string_view b) {
    const std::string_view whole_a = a;
    const std::string_view whole_b = b;
    while (!a.empty() && !b.empty()) {
        if (is_digit(a.front()) && is_digit(b.front())) {
            const std::string_view number_a = take_number(a);
            const std::string_view number_b = take_number(b);
            if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
            if (number_a != number_b) return number_a < number_b;
        } else {
            if (a.front() != b.front()) return a.front() < b.front();
            a.remove_prefix(1);
            b.remove_prefix(1);
        }
    }
    if (a.empty() != b.empty()) return a.empty();
    return whole_a < whole_b;  // h01 and h1
}

RankTable make_rank_table(std::span<const HostSize> hosts) {
    Order places = places_asked_for(hosts);
    std::deque<const HostSize*> others;
    for (const HostSize* host : in_natural_order(hosts)) {
        const bool has_place = host->node_rank && std::cmp_less(*host->node_rank, hosts.size());
        if (!has_place) others.push_back(host);
    }
    std::ranges::stable_sort(others, {},
                             [](const HostSize* host) { return host->node_rank.value_or(-1); });
    for (const HostSize*& place : places) {
        if (place != nullptr) continue;
        place = others.front();
        others.pop_front();
    }
    return number(places);
}

RankTable make_rank_table(std::span<const HostSize> hosts, const RankTable& last) {
    Order places(last.hosts.size());
    std::deque<const HostSize*> others;
    for (const HostSize& host : hosts) {
        const HostRanks* before = last.find(host.member);
        if (before != nullptr) places[static_cast<std::size_t>(before->group_rank)] = &host;
    }
    for (const HostSize* host : in_natural_order(hosts)) {
        if (last.find(host->member) != nullptr) continue;
        const auto wanted = static_cast<std::size_t>(host->node_rank.value_or(-1));
        if (wanted < places.size() && places[wanted] == nullptr) {
            places[wanted] = host;
        } else {
            others.push_back(host);
        }
    }
    for (const HostSize*& place : places) {
        if (place != nullptr || others.empty()) continue;
        place = others.front();
        others.pop_front();
    }
    places.insert(places.end(), others.begin(), others.end());
    std::erase(places, nullptr);
    return number(places);
}

}  // namespace ddp::launcher
