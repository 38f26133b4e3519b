// StackJudge: who holds up a job whose ranks record nothing, as PyTorch's do. When the first thread
// of a rank has not run once for long, the stacks of all ranks are read, twice. Ranks a thread of
// which is in a collective, and has not run between the two readings, wait; those that are in none,
// or of different ones the few, are to blame. Those that poll in one (MPI), or for their GPU
// (NCCL), wait where they are at the same place in four readings, and who is to blame has not run
// for long. The judge itself is pure.
// Invariant: nothing is said where a thread that waits has run since, but one that polls all the
// time, or where a rank has not been read as well as the others.
#pragma once

#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/silent/rank_reading.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

// Ranks whose stacks cannot be read as well as the others', for the same reasons again and again.
struct UnreadRanks {
    std::vector<int> ranks = {};
    std::string text = {};  // for the user
};

class StackJudge {
public:
    using Time = Verdict::Time;
    using Duration = Time::duration;
    // How long a first thread has to stand still: at first, as most jobs wait for each other when
    // they begin; later at least twice of what turned out to be no hang.
    static constexpr std::chrono::seconds patience_at_first{30};
    static constexpr std::chrono::seconds between_readings{5};
    static constexpr int pairs_of_polls = 3;  // readings in a row that agree, where some poll

    // Every second or so, of all ranks that run: their first threads and, of those that wait by the
    // last reading, that thread. Whether it is time to read the stacks of all.
    bool is_time_to_read(Time now, std::span<const RankRuns> threads);
    // Somebody else has all stacks read, which makes the threads run.
    void note_foreign_reading() { ++foreign_readings_; }
    bool is_between_readings() const { return first_.has_value(); }
    // They have been, by rank; none: they could not be. `ended`: ranks that have, and are not read.
    void judge(Time now, std::span<const RankReading> ranks, const std::vector<int>& ended);
    // The job has begun to record.
    void forget() { *this = StackJudge(); }
    // As long as all who wait live, and none has run; where some poll, nor who is to blame.
    const std::optional<Verdict>& verdict() const { return verdict_; }
    // Why nothing is ever said where ranks are in a call, or none can be read: once.
    std::optional<UnreadRanks> take_unread() { return std::exchange(unread_, std::nullopt); }

private:
    struct Seen {
        ThreadRuns runs;
        Time since{};                        // it has not run
        std::uint64_t foreign_readings = 0;  // so far
    };
    struct Waiting {
        StackCall call;
        ThreadRuns runs;
        Time since{};  // as is known
    };
    // So far, of processors.
    struct Use {
        Time at{};  // by the clock of the rank's host
        std::chrono::milliseconds cpu{};
    };
    struct Reading {
        Time at{};
        Time begun{};  // the first of those that agree
        std::map<int, Waiting> waiting = {};
        std::map<int, Use> used = {};    // of all ranks
        std::map<int, Seen> still = {};  // first threads that have not run for long
    };
    std::optional<Reading> take(Time now, std::span<const RankReading> ranks) const;
    bool has_run(const Reading& before, const Reading& now) const;
    bool computes(int rank, const Reading& before, const Reading& now) const;
    static bool polls(int rank, const Reading& before, const Reading& now);
    static bool any_polls(const Reading& before, const Reading& now);
    std::map<int, Seen> still_since(const Reading& before) const;
    bool is_still(int rank, const Reading& before) const;
    static std::map<std::string, std::string> words_of_calls(const Reading& now);
    static std::optional<Verdict> find_among_waiting(Verdict found, const Reading& now,
                                                     const std::vector<int>& ended,
                                                     const std::string& how_long);
    std::optional<Verdict> find(const Reading& before, const Reading& now,
                                std::span<const RankReading> ranks, const std::vector<int>& ended,
                                const std::string& how_long) const;
    void note_unread(std::span<const RankReading> ranks);
    void count_anew(Time now, std::span<const RankRuns> threads);
    void forget_verdict(Time now);

    std::map<int, Seen> seen_;  // first threads
    std::uint64_t foreign_readings_ = 0;
    Duration patience_ = patience_at_first;
    Duration pause_ = patience_at_first;  // until the next reading, where one has told nothing
    Time next_reading_{};
    std::optional<Reading> first_;  // of two
    int pairs_ = 0;                 // that agree so far
    Reading last_;                  // of the verdict; still: who must not run as long as it holds
    std::optional<Verdict> verdict_;
    std::map<int, std::string> problems_;  // of ranks that the last reading has not read well
    bool has_told_unread_ = false;
    std::optional<UnreadRanks> unread_;
};

}  // namespace ddp::launcher
