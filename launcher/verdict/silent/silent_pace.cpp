#include "launcher/verdict/silent/silent_pace.hpp"

#include "launcher/verdict/silent/stack_judge.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ddp::launcher {
namespace {

constexpr std::chrono::minutes longest_pause{30};
constexpr std::uint32_t all_of_them = 1;  // the group

std::string own_frame_of(const RankStacks& stacks) {
    for (const ThreadStack& thread : stacks.python) {
        if (thread.tid == stacks.pid) return thread.own_frame;
    }
    return {};
}

}  // namespace

bool may_wait_for_others(const std::string& system_call) {
    constexpr std::array<std::string_view, 9> calls{"futex",
                                                    "poll",
                                                    "ppoll",
                                                    "select",
                                                    "pselect",
                                                    "epoll_wait",
                                                    "recvfrom of a socket",
                                                    "recvmsg of a socket",
                                                    "read of a socket"};
    return std::ranges::find(calls, system_call) != calls.end();
}

void SilentPace::begin_stretch() {
    waits_.clear();
    looks_ = 0;
}

void SilentPace::note(Time now, std::span<const Look> ranks, const SlowNews::Look& use) {
    const bool are_the_same =
        waits_.size() == ranks.size() && std::ranges::all_of(ranks, [&](const Look& look) {
            const auto known = waits_.find(look.rank);
            return known != waits_.end() && known->second.first == look.pid;
        });
    if (!are_the_same) {
        begin_stretch();
        begun_ = now;
        for (const Look& look : ranks) waits_[look.rank] = {look.pid, 0};
    }
    for (const Look& look : ranks) waits_[look.rank].second += look.waits ? 1 : 0;
    if (++looks_ < looks_of_stretch || now < silent_until_) return;
    Paces paces{.time = now - std::exchange(begun_, now)};
    for (auto& [rank, waits] : waits_) {
        paces.ranks.push_back(
            {.rank = rank,
             .pid = waits.first,
             .in_calls = static_cast<double>(waits.second) / static_cast<double>(looks_),
             .groups = {all_of_them}});
        waits.second = 0;
    }
    looks_ = 0;
    std::vector<std::string> texts = slow_.consider(paces, use);
    if (state_ == State::confirmed) {
        news_.insert(news_.end(), texts.begin(), texts.end());
    } else if (!slow_.facts()) {
        state_ = State::watching;
    } else if (state_ == State::watching) {
        state_ = State::reading;
        text_ = slow_.facts()->text;
        seen_.clear();
        read_ = 0;
        next_reading_ = now;
    }
    if (!slow_.facts()) state_ = State::watching;
}

void SilentPace::judge(Time now, std::span<const RankStacks> ranks) {
    if (state_ != State::reading) return;
    next_reading_ = now + between_readings;
    for (const RankStacks& one : ranks) {
        Seen& seen = seen_[one.rank];
        if (call_of(one)) {
            ++seen.in_collectives;
        } else if (const std::string frame = own_frame_of(one); !frame.empty()) {
            ++seen.elsewhere[frame];
        }
    }
    if (++read_ < readings) return;
    if (!is_confirmed()) return give_up(now);
    state_ = State::confirmed;
    news_.push_back(text_ + where_they_were());
}

// Half of the others were in collectives at least twice, and each that is slow half as often as
// those at most.
bool SilentPace::is_confirmed() const {
    const std::vector<int>& slow = slow_.facts()->ranks;
    std::vector<int> others;
    int most_of_slow = 0;
    for (const auto& [rank, seen] : seen_) {
        if (std::ranges::binary_search(slow, rank)) {
            most_of_slow = std::max(most_of_slow, seen.in_collectives);
        } else {
            others.push_back(seen.in_collectives);
        }
    }
    if (others.empty()) return false;
    std::ranges::sort(others);
    const int middle = others[others.size() / 2];
    return middle >= 2 && 2 * most_of_slow <= middle;
}

// "\n  rank 1 was in no collective in 7 of 8 readings, 6 times in load (train.py:9)"
std::string SilentPace::where_they_were() const {
    std::string text;
    for (const int rank : slow_.facts()->ranks) {
        const auto seen = seen_.find(rank);
        if (seen == seen_.end()) continue;
        text += "\n  rank " + std::to_string(rank) + " was in no collective in " +
                std::to_string(read_ - seen->second.in_collectives) + " of " +
                std::to_string(read_) + " readings of its stack";
        const auto often = std::ranges::max_element(seen->second.elsewhere, {},
                                                    [](const auto& place) { return place.second; });
        if (often == seen->second.elsewhere.end()) continue;
        text += ", in " + std::to_string(often->second) + " of them in " + often->first;
    }
    return text;
}

void SilentPace::give_up(Time now) {
    silent_until_ = now + pause_;
    pause_ = std::min<std::chrono::seconds>(2 * pause_, longest_pause);
    state_ = State::watching;
    slow_ = SlowNews("waiting");
    begin_stretch();
}

const std::optional<SlowFacts>& SilentPace::facts() const {
    static const std::optional<SlowFacts> none;
    return state_ == State::confirmed ? slow_.facts() : none;
}

}  // namespace ddp::launcher
