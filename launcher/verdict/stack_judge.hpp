// StackJudge: who holds up a job whose ranks record nothing, as PyTorch's do. A rank whose first
// thread has not run once for long is looked at, with all others, by their stacks; when it waits in
// a collective, those that are in none, or in another, are to blame. The judge itself is pure.
// Invariant: nothing is said of a rank that has run since.
#pragma once

#include "launcher/stacks/rank_stacks.hpp"
#include "launcher/verdict/hang_judge.hpp"
#include "launcher/verdict/process_state.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// What a rank waits in, as its stacks tell.
struct StackCall {
    std::string name = {};   // "all_reduce"; of which that is not known "a collective"
    std::string place = {};  // "train.py:9", of the program's own code; may be empty

    std::string words() const;  // "all_reduce (train.py:9)"
    friend bool operator==(const StackCall&, const StackCall&) = default;
    friend auto operator<=>(const StackCall&, const StackCall&) = default;
};
// Nothing: it is in no collective that is known here: torch.distributed's, Gloo's, MPI's.
std::optional<StackCall> call_of(const RankStacks& stacks);

// Whether the process has a library with such collectives loaded; nobody else is read.
bool has_known_collectives(pid_t pid);

class StackJudge {
public:
    using Time = Verdict::Time;
    using Duration = Time::duration;
    // How long a first thread has to stand still: at first, as most jobs wait for each other when
    // they begin; later at least twice of what turned out to be no hang.
    static constexpr std::chrono::seconds patience_at_first{30};

    struct FirstThread {
        int rank = 0;
        // So often it has run, and for so long.
        std::uint64_t switches = 0;
        std::chrono::nanoseconds cpu{0};
    };
    // Nothing where it has ended, or the kernel does not tell.
    static std::optional<FirstThread> first_thread_of(int rank, pid_t pid);

    // Every second or so, of all ranks that run. Whether it is time to read the stacks of all.
    bool is_time_to_read(Time now, std::span<const FirstThread> threads);
    // They have been; `threads` and `states`: of those processes afterwards, in the same order.
    void judge(Time now, std::span<const RankStacks> stacks, std::span<const FirstThread> threads,
               std::span<const ProcessState> states);
    // As long as none of those who wait has run.
    const std::optional<Verdict>& verdict() const { return verdict_; }

private:
    struct Seen {
        FirstThread thread;
        Time since{};  // it has not run
    };
    bool is_still(int rank, Time now) const;
    bool goes_on(const FirstThread& thread) const;
    void forget_verdict(Time now);

    struct Used {
        Time at{};
        std::chrono::milliseconds cpu{0};  // of all ranks together
    };
    std::optional<Verdict> find_stuck(Time now, const std::vector<int>& ranks,
                                      const StackCall& call, std::span<const ProcessState> states);

    std::map<int, Seen> seen_;
    std::map<int, FirstThread> at_verdict_;  // of those who wait
    Duration patience_ = patience_at_first;
    Duration pause_ = patience_at_first;  // until the next reading, where one has told nothing
    Time next_reading_{};
    std::optional<Used> used_;  // when all were in one call
    std::optional<Verdict> verdict_;
};

}  // namespace ddp::launcher
