// What communicators have in common of which one was made from the other with shared resources. In
// NCCL it is more; this is what a caller can tell.
#pragma once

#include <atomic>
#include <cstdint>

namespace stand_in {

struct Shared {
    // NCCL's abort flag: work ends, and is never begun again.
    std::atomic<bool> stopped = false;
    std::atomic<bool> aborted = false;  // by Abort: also what comes up ends
    // By Abort or Revoke: the split or shrink that is under way ends.
    std::atomic<bool> child_stopped = false;
    // NCCL's stream on the device: pieces of work run in the order of their calls.
    std::atomic<std::uint64_t> launched = 0;
    std::atomic<std::uint64_t> completed = 0;
};

}  // namespace stand_in
