// The barrier of one group, and everything that can end a wait: all arrived, a peer died, somebody
// aborted, the deadline passed. Waiting: pauses, then sched_yield for up to 1 ms, then futex in
// slices of 20 ms; at the end of each slice the peers' pidfds and the abort words are looked at.
#pragma once

#include "backends/shm/shared_region.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::shm {

enum class AbortReason : std::uint32_t { none, peer_died, peer_timed_out, mismatch };

class ShmBarrier {
public:
    // Opens a pidfd for each rank named in the region; all ranks must have written their pids.
    // `agent_abort`: the control region's abort word (1 + the rank to blame), or null.
    ShmBarrier(SharedRegion& region, int rank, const std::atomic<std::uint32_t>* agent_abort);

    // `what` describes the operation for messages. Throws PeerError, TimeoutError; then every other
    // rank throws too.
    void arrive_and_wait(const base::Deadline& deadline, const std::string& what);

    // Ends every wait on every rank. The first call wins.
    void abort(AbortReason reason, int culprit);

private:
    bool opened(std::uint32_t generation) const;
    void wait_until_open(std::uint32_t generation, const base::Deadline&, const std::string& what);
    void look_for_trouble(std::uint32_t generation, const std::string& what);
    void throw_if_aborted(const std::string& what) const;
    [[noreturn]] void give_up(const base::Deadline&, const std::string& what);
    int dead_peer() const;  // -1: all live

    SharedRegion& region_;
    int rank_;
    const std::atomic<std::uint32_t>* agent_abort_;
    std::vector<base::UniqueFd> pidfds_;  // by rank; none for this one
    std::vector<bool> gone_;              // had already died when we looked
};

}  // namespace ddp::shm
