#include "launcher/verdict/slow_news.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::size_t most_described = 8;

// Of two in the middle the smaller.
double median(std::vector<double> values) {
    if (values.empty()) return {};
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

bool are_peers(const RankPace& one, const RankPace& other) {
    return one.rank != other.rank &&
           std::ranges::any_of(one.groups, [&](const std::uint32_t group) {
               return std::ranges::find(other.groups, group) != other.groups.end();
           });
}

// Of the members of each group what they have spent in collectives, the least first.
using SharesOfGroups = std::map<std::uint32_t, std::vector<double>>;
SharesOfGroups shares_of_groups(const Paces& paces) {
    SharesOfGroups shares;
    for (const RankPace& pace : paces.ranks) {
        for (const std::uint32_t group : pace.groups) shares[group].push_back(pace.in_calls);
    }
    for (auto& [group, all] : shares) std::ranges::sort(all);
    return shares;
}

// The middle one's of the others, of two the smaller, in the group that waits most for the rank;
// nothing: it is alone.
std::optional<double> share_of_others(const RankPace& pace, const SharesOfGroups& shares) {
    std::optional<double> most;
    for (const std::uint32_t group : pace.groups) {
        const std::vector<double>& all = shares.at(group);
        if (all.size() < 2) continue;
        const auto own = std::ranges::lower_bound(all, pace.in_calls) - all.begin();
        const auto middle = static_cast<std::ptrdiff_t>((all.size() - 2) / 2);
        const double others = all[static_cast<std::size_t>(middle < own ? middle : middle + 1)];
        most = std::max(most.value_or(others), others);
    }
    return most;
}

// What is usual among them.
UseRate middle_of(const std::vector<UseRate>& rates) {
    const auto of = [&](double UseRate::*member) {
        std::vector<double> values;
        values.reserve(rates.size());
        for (const UseRate& rate : rates) values.push_back(rate.*member);
        return median(std::move(values));
    };
    UseRate middle{.cpu = of(&UseRate::cpu),
                   .waited_for_processor = of(&UseRate::waited_for_processor),
                   .throttled = of(&UseRate::throttled),
                   .major_faults = of(&UseRate::major_faults)};
    const bool all_on_the_same = std::ranges::all_of(
        rates, [&](const UseRate& rate) { return rate.processors == rates.front().processors; });
    if (!rates.empty() && all_on_the_same) middle.processors = rates.front().processors;
    return middle;
}

}  // namespace

std::vector<std::string> SlowNews::consider(const Paces& paces, const Look& look) {
    note(paces, look);
    std::vector<std::string> texts;
    const std::vector<int> even_ones = take_even();
    if (!even_ones.empty()) {
        texts.push_back(name_ranks(even_ones) + (even_ones.size() == 1 ? " keeps" : " keep") +
                        " up with the others again");
    }
    std::string text = take_slow(paces, look);
    if (!text.empty()) texts.push_back(std::move(text));
    settle_facts();
    return texts;
}

void SlowNews::forget(int rank) {
    courses_.erase(rank);
    settle_facts();
}

void SlowNews::note(const Paces& paces, const Look& look) {
    std::erase_if(courses_, [&](const auto& course) {
        return !std::ranges::binary_search(paces.ranks, course.first, {}, &RankPace::rank);
    });
    bool any_suspect = false;
    const SharesOfGroups shares = shares_of_groups(paces);
    for (const RankPace& one : paces.ranks) {
        const std::optional<double> others = share_of_others(one, shares);
        if (!others) continue;
        Course& course = courses_[one.rank];
        const double less = *others - one.in_calls;
        course.even_in_a_row = less < even ? course.even_in_a_row + 1 : 0;
        if (less < slow) {
            course.slow_in_a_row = 0;
            course.time = course.in_calls = course.others_in_calls = {};
            continue;
        }
        ++course.slow_in_a_row;
        course.time += paces.time;
        course.in_calls += Seconds(paces.time) * one.in_calls;
        course.others_in_calls += Seconds(paces.time) * *others;
        any_suspect = any_suspect || course.text.empty();
    }
    if (!any_suspect) return first_uses_.clear();
    if (!first_uses_.empty()) return;
    for (const RankPace& one : paces.ranks) {
        if (auto use = look(one.rank)) first_uses_.emplace(one.rank, *std::move(use));
    }
}

std::vector<int> SlowNews::take_even() {
    std::vector<int> ranks;
    for (auto& [rank, course] : courses_) {
        if (course.text.empty() || course.even_in_a_row < stretches_until_said) continue;
        course.text.clear();
        ranks.push_back(rank);
    }
    return ranks;
}

std::string SlowNews::take_slow(const Paces& paces, const Look& look) {
    std::vector<int> slow_ones;
    std::vector<int> peers;
    for (const RankPace& one : paces.ranks) {
        const Course& course = courses_[one.rank];
        if (!course.text.empty() || course.slow_in_a_row < stretches_until_said) continue;
        slow_ones.push_back(one.rank);
        for (const RankPace& other : paces.ranks) {
            if (are_peers(one, other)) peers.push_back(other.rank);
        }
    }
    std::ranges::sort(peers);
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    std::erase_if(peers, [&](int rank) {
        return std::ranges::binary_search(slow_ones, rank) || !courses_[rank].text.empty();
    });
    if (slow_ones.empty() || peers.empty()) return {};
    const Course& first = courses_[slow_ones.front()];
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(first.time);
    const std::string names = name_ranks(slow_ones);
    std::string text = names + (slow_ones.size() == 1 ? " slows" : " slow") + " down " +
                       name_ranks(peers) + ": in the last " + describe_time(time) + " " + names +
                       " spent " + percent(first.in_calls / first.time) + " of the time " + where_ +
                       ", the others " + percent(first.others_in_calls / first.time) +
                       what_differs_of(slow_ones, peers, paces, look);
    for (const int rank : slow_ones) courses_[rank].text = text;
    return text;
}

std::string SlowNews::what_differs_of(const std::vector<int>& slow, const std::vector<int>& others,
                                      const Paces& paces, const Look& look) const {
    std::map<int, UseRate> rates;
    std::vector<UseRate> rates_of_others;
    for (const auto& [rank, before] : first_uses_) {
        const auto after = look(rank);
        if (!after || after->at <= before.at) continue;  // its host has told nothing since
        UseRate rate = rate_of(before, *after);
        if (std::ranges::binary_search(others, rank)) rates_of_others.push_back(rate);
        rates.emplace(rank, std::move(rate));
    }
    const UseRate usual = middle_of(rates_of_others);
    std::string text;
    for (std::size_t i = 0; i < std::min(slow.size(), most_described); ++i) {
        const auto rate = rates.find(slow[i]);
        const auto rank = std::ranges::find(paces.ranks, slow[i], &RankPace::rank);
        if (rate == rates.end() || rank == paces.ranks.end()) continue;
        text +=
            begin_of_line(rank->rank, rank->host, rank->pid) + what_differs(rate->second, usual);
    }
    return text;
}

void SlowNews::settle_facts() {
    SlowFacts facts;
    for (const auto& [rank, course] : courses_) {
        if (course.text.empty()) continue;
        facts.ranks.push_back(rank);
        if (facts.text.find(course.text) != facts.text.npos) continue;  // said of several
        facts.text += (facts.text.empty() ? "" : "\n") + course.text;
    }
    facts_ = facts.ranks.empty() ? std::nullopt : std::optional(std::move(facts));
}

}  // namespace ddp::launcher
