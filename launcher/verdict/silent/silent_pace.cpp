#include "launcher/verdict/silent/silent_pace.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace ddp::launcher {
namespace {

constexpr std::chrono::minutes longest_pause{30};
constexpr std::uint32_t all_of_them = 1;  // the group

// Of others one rank alone may wait, for another one.
bool waits_for_all(const StackCall& call) {
    constexpr std::array<std::string_view, 12> beginnings{
        "all_reduce",     "all_gather",   "reduce_scatter", "all_to_all",
        "barrier",        "a collective", "MPI_Allreduce",  "MPI_Allgather",
        "MPI_Reduce_sca", "MPI_Alltoall", "MPI_Barrier",    "monitored_barrier"};
    std::string_view name = call.name;
    if (name.starts_with("PMPI_")) name.remove_prefix(1);
    return std::ranges::any_of(
        beginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// Else one of which less is known would be taken for one that does less.
bool are_read_alike(std::span<const RankReading> ranks) {
    return std::ranges::all_of(ranks, [&](const RankReading& one) {
        return one.problem.empty() && one.is_whole && one.in_python == ranks.front().in_python;
    });
}

}  // namespace

void SilentPace::begin_stretch(Time now, std::span<const RankRuns> ranks) {
    begun_ = now;
    waits_.clear();
    for (const RankRuns& rank : ranks) {
        waits_[rank.rank] = {.host = rank.host, .pid = rank.pid, .switches = rank.runs.switches};
    }
}

void SilentPace::note(Time now, std::span<const RankRuns> ranks, const SlowNews::Look& use) {
    const bool are_the_same =
        waits_.size() == ranks.size() && std::ranges::all_of(ranks, [&](const RankRuns& rank) {
            const auto known = waits_.find(rank.rank);
            return known != waits_.end() && known->second.pid == rank.pid;
        });
    if (!are_the_same) {
        forget();
        begin_stretch(now, ranks);
    }
    bool has_ended = true;
    bool is_one_wait = false;
    for (const RankRuns& rank : ranks) {
        Waits& waits = waits_[rank.rank];
        waits.looks += rank.looks;
        waits.waits += rank.waits;
        has_ended = has_ended && waits.looks >= looks_of_stretch;
        is_one_wait = is_one_wait || (waits.waits >= SlowNews::slow * waits.looks &&
                                      rank.runs.switches - waits.switches < least_switches);
    }
    if (!has_ended) return;
    // A pause, in which nothing is said, ends with the next reading.
    if (!is_one_wait && (state_ != State::watching || now >= next_reading_)) {
        end_stretch(now, use);
    }
    begin_stretch(now, ranks);
}

void SilentPace::end_stretch(Time now, const SlowNews::Look& use) {
    Paces paces{.time = now - begun_};
    for (const auto& [rank, waits] : waits_) {
        paces.ranks.push_back(
            {.rank = rank,
             .host = waits.host,
             .pid = waits.pid,
             .in_calls = static_cast<double>(waits.waits) / static_cast<double>(waits.looks),
             .groups = {all_of_them}});
    }
    std::vector<std::string> texts = slow_.consider(paces, use);
    const std::optional<SlowFacts>& found = slow_.facts();
    if (!found) {
        if (confirmed_) news_.insert(news_.end(), texts.begin(), texts.end());
        confirmed_.reset();
        state_ = State::watching;
    } else if (confirmed_ && std::ranges::includes(confirmed_->ranks, found->ranks)) {
        news_.insert(news_.end(), texts.begin(), texts.end());
        if (found->ranks != confirmed_->ranks) confirmed_ = found;
        state_ = State::confirmed;
    } else if (state_ != State::reading || found->ranks != suspects_.ranks) {
        suspects_ = *found;
        begin_readings(now);
    }
}

void SilentPace::begin_readings(Time now) {
    state_ = State::reading;
    seen_.clear();
    asked_ = good_ = 0;
    next_reading_ = now;
}

void SilentPace::judge(Time now, std::span<const RankReading> ranks) {
    if (state_ != State::reading) return;
    next_reading_ = now + between_readings;
    ++asked_;
    if (ranks.size() == waits_.size() && are_read_alike(ranks)) {
        ++good_;
        for (const RankReading& one : ranks) {
            Seen& seen = seen_[one.rank];
            if (one.call && waits_for_all(*one.call)) {
                ++seen.in_collectives;
                seen.collectives.insert(one.call->words());
            } else if ((!one.call || one.call->on_gpu) && !one.own_frame.empty()) {
                ++seen.elsewhere[one.own_frame];
            }
        }
    }
    if (good_ >= least_readings && is_confirmed()) {
        state_ = State::confirmed;
        confirmed_ = suspects_;
        confirmed_->text += where_they_were();
        news_.push_back(confirmed_->text);
    } else if (asked_ >= most_readings) {
        give_up(now);
    }
}

// Half of the others were in collectives twice or more, and each that is slow was in one of the
// same, but not half as often as they.
bool SilentPace::is_confirmed() const {
    std::vector<int> others;
    std::set<std::string> collectives;
    for (const auto& [rank, seen] : seen_) {
        if (std::ranges::binary_search(suspects_.ranks, rank)) continue;
        others.push_back(seen.in_collectives);
        collectives.insert(seen.collectives.begin(), seen.collectives.end());
    }
    if (others.empty()) return false;
    std::ranges::sort(others);
    const int middle = others[others.size() / 2];
    return middle >= 2 && std::ranges::all_of(suspects_.ranks, [&](int rank) {
               const auto seen = seen_.find(rank);
               return seen != seen_.end() && 2 * seen->second.in_collectives <= middle &&
                      std::ranges::any_of(seen->second.collectives, [&](const std::string& call) {
                          return collectives.contains(call);
                      });
           });
}

// "\n  rank 1 was in no collective in 7 of 8 readings of its stack, in 6 of them in load (a.py:9)"
std::string SilentPace::where_they_were() const {
    std::string text;
    for (const int rank : suspects_.ranks) {
        const Seen& seen = seen_.at(rank);
        text += "\n  rank " + std::to_string(rank) + " was in no collective in " +
                std::to_string(good_ - seen.in_collectives) + " of " + std::to_string(good_) +
                " readings of its stack";
        const auto often = std::ranges::max_element(seen.elsewhere, {},
                                                    [](const auto& place) { return place.second; });
        if (often == seen.elsewhere.end()) continue;
        text += ", in " + std::to_string(often->second) + " of them in " + often->first;
    }
    return text;
}

void SilentPace::give_up(Time now) {
    state_ = State::watching;
    slow_ = SlowNews("waiting");
    confirmed_.reset();
    next_reading_ = now + pause_;
    pause_ = std::min<std::chrono::seconds>(2 * pause_, longest_pause);
}

}  // namespace ddp::launcher
