#include "launcher/verdict/silent/stack_judge.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::chrono::minutes most_pause{10};
// Since a verdict on ranks that poll it is counted for so long how threads have run.
constexpr std::chrono::minutes between_counts{2};
constexpr std::size_t most_ranks_described = 16;  // ranks, each by a line

// "\n  rank 1 (pid 4711) sleeps in read of /data/part-7, in load (train.py:5)"
std::string line_of(const RankReading& rank, bool is_busy) {
    const ProcessState& process = rank.process;
    std::string text = begin_of_line(rank.rank, rank.host, rank.pid);
    if (process.tracer != 0 && process.is_held()) {
        text += " is held by a debugger (pid " + std::to_string(process.tracer) + ")";
    } else if (process.is_frozen) {
        text += " is frozen, with its cgroup";
    } else if (process.state == 'T') {
        text += " is stopped (SIGSTOP)";
    } else if (rank.call && rank.call->on_gpu) {
        text += " waits for its GPU";
    } else if (!is_busy && (process.state == 'S' || process.state == 'D')) {
        text += " sleeps" + (process.waits_in.empty() ? "" : " in " + process.waits_in);
    } else {
        text += " computes";
    }
    return text + (rank.own_frame.empty() ? "" : ", in " + rank.own_frame);
}

// Who reads a thread makes it run: each time four times, for 0.1 ms together.
constexpr std::uint64_t switches_of_reading = 6;
constexpr std::uint64_t of_readers = 2 * switches_of_reading;
constexpr std::chrono::milliseconds little{1};

// More than readers, and users who look, make it.
bool has_moved(const ThreadRuns& before, const ThreadRuns& now) {
    return now.switches - before.switches > 3 * switches_of_reading ||
           now.cpu - before.cpu > 3 * little;
}
bool has_run_by_itself(const ThreadRuns& before, const ThreadRuns& now) {
    return now.switches - before.switches > of_readers || now.cpu - before.cpu > little;
}
// It computed for all of the time that others left it, and may be where it was.
bool has_polled(const ThreadRuns& before, const ThreadRuns& now, std::chrono::nanoseconds time) {
    return now.cpu - before.cpu > time / 20 && now.sleeps - before.sleeps <= of_readers;
}

// One rank calls another thing than its peers in those, and all may be right.
bool may_differ(std::string_view name) {
    constexpr std::array<std::string_view, 8> names{"send",
                                                    "recv",
                                                    "isend",
                                                    "irecv",
                                                    "batch_isend_irecv",
                                                    "scatter",
                                                    "gather",
                                                    "a wait for the store"};
    return std::ranges::find(names, name) != names.end();
}

std::string joined(const std::map<std::string, std::string>& words) {
    std::string all;
    for (const auto& [name, text] : words) all += (all.empty() ? "" : ", ") + text;
    return all;
}

}  // namespace

// It went on by itself: such a wait is no news in this job any more.
void StackJudge::forget_verdict(Time now) {
    patience_ = std::max(patience_, 2 * (now - verdict_->since));
    pause_ = patience_;
    next_reading_ = now;
    verdict_.reset();
}

bool StackJudge::is_time_to_read(Time now, std::span<const RankRuns> threads) {
    bool any_is_still = false;
    std::size_t ranks = 0;
    std::size_t who_wait = 0;
    std::size_t who_are_still = 0;  // of those because of whom others poll
    const Duration time = now - last_.at;
    for (const RankRuns& thread : threads) {
        if (!thread.is_of_first) {
            const auto found = last_.waiting.find(thread.rank);
            if (found == last_.waiting.end()) continue;
            const ThreadRuns& before = found->second.runs;
            const bool waits = !has_run_by_itself(before, thread.runs) ||
                               (!last_.still.empty() && has_polled(before, thread.runs, time));
            who_wait += waits ? 1U : 0U;
            continue;
        }
        const auto still = last_.still.find(thread.rank);
        const bool is_still =
            still != last_.still.end() && !has_moved(still->second.runs, thread.runs);
        who_are_still += is_still ? 1U : 0U;
        ++ranks;
        const Seen fresh{thread.runs, now, foreign_readings_};
        Seen& seen = seen_.try_emplace(thread.rank, fresh).first->second;
        const std::uint64_t readings = foreign_readings_ - seen.foreign_readings;
        if (thread.runs.switches - seen.runs.switches > switches_of_reading * readings ||
            thread.runs.cpu - seen.runs.cpu > little * static_cast<int>(1 + readings)) {
            seen = fresh;
        }
        any_is_still = any_is_still || now - seen.since >= patience_;
    }
    if (verdict_) {
        // One has run, or has ended.
        if (who_wait < last_.waiting.size() || who_are_still < last_.still.size()) {
            forget_verdict(now);
        } else if (!last_.still.empty() && now - last_.at >= between_counts) {
            count_anew(now, threads);
        }
        return false;
    }
    if (first_ && now - first_->at >= between_readings) return true;
    if (first_ || !any_is_still || ranks < 2 || now < next_reading_) return false;
    next_reading_ = now + pause_;
    pause_ = std::min<Duration>(2 * pause_, most_pause);
    return true;
}

// Users look now and then, and who polls may have to wait for a page.
void StackJudge::count_anew(Time now, std::span<const RankRuns> threads) {
    last_.at = now;
    for (const RankRuns& thread : threads) {
        const auto still = last_.still.find(thread.rank);
        if (thread.is_of_first && still != last_.still.end()) still->second.runs = thread.runs;
        const auto waits = last_.waiting.find(thread.rank);
        if (!thread.is_of_first && waits != last_.waiting.end()) waits->second.runs = thread.runs;
    }
}

// Nothing where ranks have not been read equally well, or one has run meanwhile.
std::optional<StackJudge::Reading> StackJudge::take(Time now,
                                                    std::span<const RankReading> ranks) const {
    Reading reading{.at = now, .begun = now};
    std::optional<bool> in_python;
    bool all_wait = true;
    for (const RankReading& rank : ranks) {
        reading.used[rank.rank] = {rank.at, rank.process.cpu_time};
        const auto seen = seen_.find(rank.rank);
        const bool is_held = rank.process.is_held();
        if (seen != seen_.end() && (is_held || now - seen->second.since >= patience_)) {
            reading.still[rank.rank] = seen->second;
        }
        all_wait = all_wait && !is_held && rank.call;
        if (is_held) continue;
        if (!rank.is_whole || in_python.value_or(rank.in_python) != rank.in_python) {
            return std::nullopt;
        }
        in_python = rank.in_python;
        if (!rank.call) continue;
        if (!rank.runs) return std::nullopt;
        // As the thread that waits may be another than the first, that one alone tells since when.
        const bool is_first = rank.call->tid == rank.pid && seen != seen_.end();
        reading.waiting[rank.rank] = {*rank.call, *rank.runs, is_first ? seen->second.since : now};
    }
    // A GPU may have much to do of its own: who waits for it waits for others only where one of
    // them is in no call.
    if (all_wait) {
        std::erase_if(reading.waiting, [](const auto& one) { return one.second.call.on_gpu; });
    }
    return reading.waiting.empty() ? std::nullopt : std::optional(std::move(reading));
}

// One that waits now did not then, or somewhere else; or its thread has been about.
bool StackJudge::has_run(const Reading& before, const Reading& now) const {
    return before.waiting.size() != now.waiting.size() ||
           std::ranges::any_of(now.waiting, [&](const auto& one) {
               const auto then = before.waiting.find(one.first);
               return then == before.waiting.end() ||
                      then->second.call.tid != one.second.call.tid ||
                      then->second.call.words() != one.second.call.words() ||
                      (has_run_by_itself(then->second.runs, one.second.runs) &&
                       !polls(one.first, before, now));
           });
}

bool StackJudge::computes(int rank, const Reading& before, const Reading& now) const {
    constexpr double share = 0.01;  // of a processor; more than a reading takes
    const auto then = before.used.find(rank);
    const auto used = now.used.find(rank);
    if (then == before.used.end() || used == now.used.end()) return true;  // who knows
    const std::chrono::duration<double> cpu = used->second.cpu - then->second.cpu;
    return cpu > share * std::chrono::duration<double>(used->second.at - then->second.at);
}

// One that waits, by its host's clock.
bool StackJudge::polls(int rank, const Reading& before, const Reading& now) {
    const auto then = before.waiting.find(rank);
    return then != before.waiting.end() &&
           has_polled(then->second.runs, now.waiting.at(rank).runs,
                      now.used.at(rank).at - before.used.at(rank).at);
}
bool StackJudge::any_polls(const Reading& before, const Reading& now) {
    return std::ranges::any_of(now.waiting, [&](const auto& one) {
        return one.second.call.on_gpu || polls(one.first, before, now);
    });
}

// All the time since that reading, but for readers.
bool StackJudge::is_still(int rank, const Reading& before) const {
    const auto then = before.still.find(rank);
    const auto seen = seen_.find(rank);
    return then != before.still.end() && seen != seen_.end() &&
           !has_moved(then->second.runs, seen->second.runs);
}

// Of those who were, with how they have run by now.
std::map<int, StackJudge::Seen> StackJudge::still_since(const Reading& before) const {
    std::map<int, Seen> still;
    for (const auto& [rank, then] : before.still) {
        if (!is_still(rank, before)) continue;
        Seen seen = seen_.at(rank);
        seen.since = then.since;
        still.emplace(rank, seen);
    }
    return still;
}

// By what the calls are called; of each the place in one rank's program.
std::map<std::string, std::string> StackJudge::words_of_calls(const Reading& now) {
    std::map<std::string, std::string> words;
    for (const auto& [rank, waiting] : now.waiting) {
        words[waiting.call.name] = waiting.call.words();
    }
    return words;
}

// All wait: for one that has ended, or for each other.
std::optional<Verdict> StackJudge::find_among_waiting(Verdict found, const Reading& now,
                                                      const std::vector<int>& ended,
                                                      const std::string& how_long) {
    std::map<std::string, std::vector<int>> calls;  // by what they are called
    for (const auto& [rank, waiting] : now.waiting) calls[waiting.call.name].push_back(rank);
    found.ranks = found.waiting;
    if (!ended.empty()) {
        found.kind = Verdict::Kind::ahead;
        found.text =
            name_ranks(found.ranks) + (found.ranks.size() == 1 ? " has" : " have") + " been in " +
            joined(words_of_calls(now)) + " for " + how_long + "; " + name_ranks(ended) +
            (ended.size() == 1 ? " never will be: it has" : " never will be: they have") + " ended";
    } else if (calls.size() == 1) {
        found.kind = Verdict::Kind::stuck;
        found.text = "all ranks have been in " + joined(words_of_calls(now)) + " for " + how_long +
                     ", and none gets on: their arguments differ, or the network fails";
    } else if (std::ranges::any_of(calls, [](const auto& one) { return may_differ(one.first); })) {
        return std::nullopt;
    } else {
        found.kind = Verdict::Kind::mismatch;
        std::size_t most = 0;
        for (const auto& [name, some] : calls) most = std::max(most, some.size());
        const auto has_most = [&](const auto& one) { return one.second.size() == most; };
        if (std::ranges::count_if(calls, has_most) == 1) {
            std::erase_if(found.ranks, [&](int rank) {
                return has_most(*calls.find(now.waiting.at(rank).call.name));
            });
        }
        std::string lines;
        for (const auto& [name, some] : calls) {
            lines += "\n  " + name_ranks(some) + ": " + words_of_calls(now).at(name);
        }
        found.text = "the ranks have called different things, and wait for each other since " +
                     how_long + ":" + lines;
    }
    return found;
}

std::optional<Verdict> StackJudge::find(const Reading& before, const Reading& now,
                                        std::span<const RankReading> ranks,
                                        const std::vector<int>& ended,
                                        const std::string& how_long) const {
    Verdict found;
    const bool any_poll = any_polls(before, now);
    found.may_end_job = !any_poll;  // it might be that who is to blame has no part in the call
    for (const auto& [rank, waiting] : now.waiting) {
        found.waiting.push_back(rank);
        // Many bytes may be under way.
        found.may_end_job = found.may_end_job && !computes(rank, before, now);
    }
    bool all_are_held = true;
    std::string lines;
    for (const RankReading& rank : ranks) {
        if (now.waiting.contains(rank.rank)) continue;
        found.ranks.push_back(rank.rank);
        const bool is_held = rank.process.is_held();
        all_are_held = all_are_held && is_held;
        found.in_debugger = found.in_debugger || (is_held && rank.process.tracer != 0);
        // It may have much to do that the others have to wait for.
        const bool is_busy = !is_held && computes(rank.rank, before, now);
        const bool on_gpu = rank.call && rank.call->on_gpu;
        found.may_end_job = found.may_end_job && !is_busy && !on_gpu;
        if (any_poll && (is_busy || !is_still(rank.rank, before))) return std::nullopt;
        if (found.ranks.size() > most_ranks_described) continue;
        lines += line_of(rank, is_busy);
        if (any_poll) {
            lines += "; it has not run for " + time_since(before.still.at(rank.rank).since, now.at);
        }
    }
    if (found.ranks.size() > most_ranks_described) lines += "\n  ...";
    if (!found.ranks.empty()) {
        found.kind = all_are_held ? Verdict::Kind::held : Verdict::Kind::missing;
        found.text = who_holds_up_whom(found.ranks, found.waiting) + ", in " +
                     joined(words_of_calls(now)) + ", since " + how_long + lines;
        return found;
    }
    if (!found.may_end_job) return std::nullopt;  // they may go on
    return find_among_waiting(std::move(found), now, ended, how_long);
}

// A reason that is there once may pass: a thread that does not stop in time.
void StackJudge::note_unread(std::span<const RankReading> ranks) {
    const bool any_in_python = std::ranges::any_of(ranks, &RankReading::in_python);
    // Else nobody is known to wait.
    const bool is_worth_saying =
        std::ranges::any_of(ranks, [](const RankReading& rank) { return rank.call.has_value(); }) ||
        std::ranges::none_of(ranks, &RankReading::is_whole);
    const std::map<int, std::string> before = std::exchange(problems_, {});
    UnreadRanks unread;
    std::string lines;
    for (const RankReading& rank : ranks) {
        const bool is_read = rank.is_whole && rank.in_python == any_in_python;
        if (is_read || rank.problem.empty() || rank.process.is_held()) continue;
        problems_[rank.rank] = rank.problem;
        const auto found = before.find(rank.rank);
        if (found == before.end() || found->second != rank.problem) continue;
        unread.ranks.push_back(rank.rank);
        if (unread.ranks.size() > most_ranks_described) continue;
        lines += begin_of_line(rank.rank, rank.host, rank.pid) + ": " + rank.problem;
    }
    if (unread.ranks.empty() || !is_worth_saying || has_told_unread_) return;
    if (unread.ranks.size() > most_ranks_described) lines += "\n  ...";
    has_told_unread_ = true;
    unread.text = "whether the job hangs cannot be told: the stacks of " +
                  name_ranks(unread.ranks) + " are not known in full" + lines;
    unread_ = std::move(unread);
}

void StackJudge::judge(Time now, std::span<const RankReading> ranks,
                       const std::vector<int>& ended) {
    note_unread(ranks);
    auto reading = take(now, ranks);
    if (!first_ || !reading) {
        first_ = std::move(reading);
        pairs_ = 0;
        return;
    }
    const Reading before = *std::exchange(first_, std::nullopt);
    if (has_run(before, *reading)) return;
    Time since = before.begun;
    for (const auto& [rank, waiting] : before.waiting) since = std::min(since, waiting.since);
    auto found = find(before, *reading, ranks, ended, time_since(since, now));
    if (!found) return;
    const bool any_poll = any_polls(before, *reading);
    reading->begun = since;
    reading->still = any_poll ? still_since(before) : std::map<int, Seen>{};
    if (any_poll && ++pairs_ < pairs_of_polls) {
        first_ = std::move(reading);
        return;
    }
    found->since = since;
    last_ = *std::move(reading);
    std::erase_if(last_.still, [&](const auto& one) {
        return !std::ranges::binary_search(found->ranks, one.first);
    });
    verdict_ = std::move(found);
}

}  // namespace ddp::launcher
