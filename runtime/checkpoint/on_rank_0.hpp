// What rank 0 does for all ranks, such as with files: the others wait, as long as it takes, and
// hear how it went. Invariant: all ranks return, or all throw the same.
#pragma once

#include <ddp/checkpoint.hpp>

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

// Runs `work` on rank 0, in a thread of its own. Every rank returns what it returned, or throws
// CheckpointError with the message of what it threw. The group's timeout does not limit the work:
// rank 0 tells the others in time that it is still at it. When it is after `limit`, all ranks throw
// that; rank 0 only once `work` has come back, as a system call cannot be left (what it does then
// is done).
Outcome on_rank_0(ProcessGroup& group, std::chrono::milliseconds limit,
                  const std::function<Outcome()>& work);

// Of an exception without one too.
std::string message_of(const std::exception& exception);

}  // namespace ddp::checkpoint
