// RankReading: what the stacks of a rank that records nothing tell of it, in short, with what the
// kernel says of its process in that moment. Several hosts tell each other of nothing else.
#pragma once

#include "launcher/stacks/rank_stacks.hpp"
#include "launcher/verdict/process_state.hpp"
#include "launcher/verdict/process_use.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace ddp::launcher {

inline constexpr std::size_t most_silent_ranks = 64;  // of a host, that are read together

// What a rank waits in, as its stacks tell.
struct StackCall {
    std::string name = {};   // "all_reduce"; of which that is not known "a collective"
    std::string place = {};  // "train.py:9", of the program's own code; may be empty
    pid_t tid = 0;           // the thread that waits in it
    // It waits for what its GPU has to do: perhaps a collective of NCCL's, perhaps nothing of the
    // others'.
    bool on_gpu = false;

    std::string words() const;  // "all_reduce (train.py:9)"
};

struct RankReading {
    int rank = 0;           // in the job
    std::string host = {};  // where it runs; empty: here
    pid_t pid = 0;
    bool is_whole = false;     // all of its threads are known by name
    bool in_python = false;    // and those of Python
    std::string problem = {};  // why something is missing
    // Nothing: it is in no collective that is known here: torch.distributed's, Gloo's, MPI's.
    std::optional<StackCall> call = {};
    std::chrono::steady_clock::time_point at = {};  // by its host's clock
    std::string own_frame = {};                     // of Python's first thread, as ThreadStack's
    ProcessState process = {};
    std::optional<ThreadRuns> runs = {};  // of the thread that waits in the call; it may have ended
};
RankReading reading_of(const RankStacks& stacks);
// The same, with what the kernel says now.
RankReading reading_now(const RankStacks& stacks);

// How often a thread of a rank has run: its first one or, by the last reading, the one that waits.
struct RankRuns {
    int rank = 0;
    std::string host = {};  // where it runs; empty: here
    pid_t pid = 0;
    bool is_of_first = true;
    ThreadRuns runs = {};
    // Of the first one, since it was told last: looks at it, and in how many it might have waited
    // for another rank.
    int looks = 0;
    int waits = 0;
    // So far, of the process; with a first one, now and then, where it is to be told to others.
    std::optional<ProcessUse> use = {};
};

}  // namespace ddp::launcher
