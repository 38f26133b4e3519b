// What rank 0 does for all ranks, such as with files: the others wait, as long as it takes, and
// hear how it went. Invariant: all ranks return, or all throw the same.
#pragma once

#include <ddp/checkpoint.hpp>
#include <ddp/device.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <string>

namespace ddp::checkpoint {

// What rank 0 tells the others; `found` is used when it has read a checkpoint.
struct Outcome {
    bool found = false;
    Progress progress;
};

struct Job {
    std::function<Outcome()> work;
    Device device{};  // of the tensors in it, if it is a GPU: its thread begins there
    // On rank 0's own thread, once the others have been told how the work went; not called when
    // they have been told that it takes too long, or could not be told anything.
    std::function<void()> on_shared = [] {};
};

// Runs the job's work on rank 0, in a thread of its own. Every rank returns what it returned, or
// throws CheckpointError with the message of what it threw. The group's timeout does not limit the
// work: rank 0 tells the others in time that it is still at it. When it is after `limit`, all ranks
// throw that; rank 0 only once the work has come back, as a system call cannot be left (what it
// does then is done). When the group fails meanwhile, rank 0 hears of it soon.
Outcome on_rank_0(ProcessGroup& group, std::chrono::milliseconds limit, const Job& job);

// Of an exception without one too.
std::string message_of(const std::exception& exception);

}  // namespace ddp::checkpoint
