#include "launcher/verdict/slow_news.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp::launcher {
namespace {

using Stretch = CallShares::Stretch;

constexpr std::size_t most_described = 8;

// Of two in the middle the smaller.
template <class Number>
Number median(std::vector<Number> values) {
    if (values.empty()) return {};
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

double share_of_peers(const Stretch& stretch, const CallShares::Share& one) {
    std::vector<double> shares;
    for (const CallShares::Share& other : stretch.ranks) {
        if (std::ranges::binary_search(one.peers, other.rank)) shares.push_back(other.in_calls);
    }
    return median(std::move(shares));
}

// What is usual among them.
UseRate middle_of(const std::vector<UseRate>& rates) {
    const auto of = [&](double UseRate::*member) {
        std::vector<double> values;
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

std::vector<std::string> SlowNews::consider(Time now, std::span<const RankState> ranks,
                                            Time resumed, const Look& look) {
    if (std::ranges::all_of(ranks, &RankState::has_ended)) return {};
    shares_.note(now, ranks, resumed);
    std::erase_if(courses_, [&](const auto& course) {
        return std::ranges::any_of(ranks, [&](const RankState& rank) {
            return rank.rank == course.first && rank.has_ended;
        });
    });
    std::vector<std::string> texts;
    if (const auto stretch = shares_.take_stretch(now, ranks)) {
        note(*stretch, look);
        const std::vector<int> even_ones = take_even();
        if (!even_ones.empty()) {
            texts.push_back(name_ranks(even_ones) + (even_ones.size() == 1 ? " keeps" : " keep") +
                            " up with the others again");
        }
        std::string text = take_slow(*stretch, ranks, look);
        if (!text.empty()) texts.push_back(std::move(text));
    }
    settle_facts();
    return texts;
}

void SlowNews::note(const Stretch& stretch, const Look& look) {
    std::erase_if(courses_, [&](const auto& course) {
        return std::ranges::find(stretch.ranks, course.first, &CallShares::Share::rank) ==
               stretch.ranks.end();
    });
    bool any_suspect = false;
    for (const CallShares::Share& one : stretch.ranks) {
        Course& course = courses_[one.rank];
        const double others = share_of_peers(stretch, one);
        const double less = others - one.in_calls;
        course.even_in_a_row = less < even ? course.even_in_a_row + 1 : 0;
        if (less < slow) {
            course.slow_in_a_row = 0;
            course.time = course.in_calls = course.others_in_calls = {};
            continue;
        }
        ++course.slow_in_a_row;
        course.time += stretch.time;
        course.in_calls += Seconds(stretch.time) * one.in_calls;
        course.others_in_calls += Seconds(stretch.time) * others;
        any_suspect = any_suspect || course.text.empty();
    }
    if (!any_suspect) return first_uses_.clear();
    if (!first_uses_.empty()) return;
    for (const CallShares::Share& one : stretch.ranks) {
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

std::string SlowNews::take_slow(const Stretch& stretch, std::span<const RankState> ranks,
                                const Look& look) {
    std::vector<int> slow_ones;
    std::vector<int> peers;
    for (const CallShares::Share& one : stretch.ranks) {
        const Course& course = courses_[one.rank];
        if (!course.text.empty() || course.slow_in_a_row < stretches_until_said) continue;
        slow_ones.push_back(one.rank);
        peers.insert(peers.end(), one.peers.begin(), one.peers.end());
    }
    std::ranges::sort(peers);
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    std::erase_if(peers, [&](int rank) {
        return std::ranges::binary_search(slow_ones, rank) || !courses_[rank].text.empty();
    });
    if (slow_ones.empty() || peers.empty()) return {};
    const Course& first = courses_[slow_ones.front()];
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(first.time);
    const std::string names = name_ranks(slow_ones);
    std::string text = names + (slow_ones.size() == 1 ? " slows" : " slow") + " down " +
                       name_ranks(peers) + ": in the last " + time_since({}, Time(time)) + " " +
                       names + " spent " + percent(first.in_calls / first.time) +
                       " of the time in collectives, the others " +
                       percent(first.others_in_calls / first.time) +
                       what_differs_of(slow_ones, peers, ranks, look);
    for (const int rank : slow_ones) courses_[rank].text = text;
    return text;
}

std::string SlowNews::what_differs_of(const std::vector<int>& slow, const std::vector<int>& others,
                                      std::span<const RankState> ranks, const Look& look) const {
    std::map<int, UseRate> rates;
    std::vector<UseRate> rates_of_others;
    for (const auto& [rank, before] : first_uses_) {
        const auto after = look(rank);
        if (!after) continue;
        UseRate rate = rate_of(before, *after);
        if (std::ranges::binary_search(others, rank)) rates_of_others.push_back(rate);
        rates.emplace(rank, std::move(rate));
    }
    const UseRate usual = middle_of(rates_of_others);
    std::string text;
    for (std::size_t i = 0; i < std::min(slow.size(), most_described); ++i) {
        const auto rate = rates.find(slow[i]);
        const auto rank = std::ranges::find(ranks, slow[i], &RankState::rank);
        if (rate == rates.end() || rank == ranks.end()) continue;
        text += begin_of_line(*rank) + what_differs(rate->second, usual);
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
