#include "launcher/verdict/slow_news.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ddp::launcher {
namespace {

using Stretch = CallShares::Stretch;

template <class Number>
Number median(std::vector<Number> values) {
    if (values.empty()) return {};
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

double share_of_others(const Stretch& stretch, int rank) {
    std::vector<double> shares;
    for (const CallShares::Share& one : stretch.ranks) {
        if (one.rank != rank) shares.push_back(one.in_calls);
    }
    return median(std::move(shares));
}

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

// What is usual among them.
UseRate middle_of(const std::vector<UseRate>& rates) {
    const auto of = [&](auto member) {
        std::vector<std::decay_t<decltype(UseRate().*member)>> values;
        for (const UseRate& rate : rates) values.push_back(rate.*member);
        return median(std::move(values));
    };
    return {.cpu = of(&UseRate::cpu),
            .waited_for_processor = of(&UseRate::waited_for_processor),
            .throttled = of(&UseRate::throttled),
            .major_faults = of(&UseRate::major_faults),
            .swapped_bytes = of(&UseRate::swapped_bytes),
            .processors = of(&UseRate::processors)};
}

}  // namespace

std::vector<std::string> SlowNews::consider(Time now, std::span<const RankState> ranks,
                                            const Look& look) {
    shares_.note(now, ranks);
    std::vector<std::string> texts;
    for (const Stretch& stretch : shares_.take_stretches(now)) {
        note(stretch, look);
        for (std::string& text : take_news(stretch, ranks, look)) texts.push_back(std::move(text));
    }
    const auto has_gone = [&](std::uint32_t group) {
        return std::ranges::none_of(ranks, [&](const RankState& rank) {
            return !rank.has_ended && rank.record.find_group(group) != nullptr;
        });
    };
    std::erase_if(groups_, [&](const auto& group) { return has_gone(group.first); });
    settle_facts();
    return texts;
}

void SlowNews::note(const Stretch& stretch, const Look& look) {
    Group& group = groups_[stretch.group];
    bool any_suspect = false;
    for (const CallShares::Share& one : stretch.ranks) {
        Course& course = group.courses[one.rank];
        const double others = share_of_others(stretch, one.rank);
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
        any_suspect = any_suspect || !course.is_said;
    }
    if (!any_suspect) return group.first_uses.clear();
    if (!group.first_uses.empty()) return;
    for (const CallShares::Share& one : stretch.ranks) {
        if (auto use = look(one.rank)) group.first_uses.emplace(one.rank, *std::move(use));
    }
}

std::vector<std::string> SlowNews::take_news(const Stretch& stretch,
                                             std::span<const RankState> ranks, const Look& look) {
    Group& group = groups_[stretch.group];
    std::vector<int> slow_ones;
    std::vector<int> even_ones;
    std::vector<int> others;
    for (const CallShares::Share& one : stretch.ranks) {
        Course& course = group.courses[one.rank];
        if (!course.is_said && course.slow_in_a_row >= stretches_until_said) {
            course.is_said = true;
            slow_ones.push_back(one.rank);
        } else if (course.is_said && course.even_in_a_row >= stretches_until_said) {
            course.is_said = false;
            even_ones.push_back(one.rank);
        }
        if (!course.is_said) others.push_back(one.rank);
    }
    std::vector<std::string> texts;
    if (!even_ones.empty()) {
        texts.push_back(name_ranks(even_ones) + (even_ones.size() == 1 ? " keeps" : " keep") +
                        " up with the others again");
    }
    if (slow_ones.empty() || others.empty()) return texts;
    const Course& course = group.courses[slow_ones.front()];
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(course.time);
    group.text = name_ranks(slow_ones) + (slow_ones.size() == 1 ? " slows" : " slow") + " down " +
                 name_ranks(others) + ": in the last " + time_since({}, Time(time)) + " " +
                 name_ranks(slow_ones) + " spent " + percent(course.in_calls / course.time) +
                 " of the time in collectives, the others " +
                 percent(course.others_in_calls / course.time);
    std::map<int, UseRate> rates;
    std::vector<UseRate> rates_of_others;
    for (const auto& [rank, before] : group.first_uses) {
        const auto after = look(rank);
        if (!after) continue;
        const UseRate rate = rate_of(before, *after);
        rates.emplace(rank, rate);
        if (std::ranges::binary_search(others, rank)) rates_of_others.push_back(rate);
    }
    constexpr std::size_t most_lines = 8;
    for (std::size_t i = 0; i < std::min(slow_ones.size(), most_lines); ++i) {
        const auto rate = rates.find(slow_ones[i]);
        const auto rank = std::ranges::find(ranks, slow_ones[i], &RankState::rank);
        if (rate == rates.end() || rank == ranks.end()) continue;
        group.text += begin_of_line(*rank) + what_differs(rate->second, middle_of(rates_of_others));
    }
    texts.push_back(group.text);
    return texts;
}

void SlowNews::settle_facts() {
    SlowFacts facts;
    for (const auto& [id, group] : groups_) {
        bool any_said = false;
        for (const auto& [rank, course] : group.courses) {
            if (course.is_said) facts.ranks.push_back(rank);
            any_said = any_said || course.is_said;
        }
        if (any_said) facts.text += (facts.text.empty() ? "" : "\n") + group.text;
    }
    std::ranges::sort(facts.ranks);
    facts.ranks.erase(std::unique(facts.ranks.begin(), facts.ranks.end()), facts.ranks.end());
    facts_ = facts.ranks.empty() ? std::nullopt : std::optional(std::move(facts));
}

}  // namespace ddp::launcher
