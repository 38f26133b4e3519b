// Spreads ranks that share a core although another core is idle. The kernel leaves a thread that
// ran a moment ago where its caches are warm, and ranks that wait for each other in turns on one
// core are always such threads. A wait then costs a context switch, ten times as much as a cache
// line. So ranks publish the core on which they wait, and one of too many on a core migrates.
// Invariant: a rank's affinity mask is the same after a migration as before.
#pragma once

#include "backends/shm/region/shared_region.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ddp::shm {

class CoreSharing {
public:
    // The cores are those in this thread's affinity mask.
    CoreSharing(SharedRegion& region, int rank);

    // The calling thread begins to yield its core in a wait. May migrate it to another core of its
    // affinity mask. Any thread; calls of other threads meanwhile do nothing.
    void begin_wait();

private:
    void check_crowding(int core);
    void migrate_from(int core) const;

    SharedRegion& region_;
    int rank_;
    int fair_share_;  // ranks a core, rounded up
    std::atomic<bool> busy_{false};
    std::uint32_t waits_ = 0;
    int crowded_checks_ = 0;                // in a row
    std::vector<std::uint32_t> last_seen_;  // waiting_core of each rank at the last check
};

// `cores`: the core of each rank (-1: none). Returns the core among `allowed` with the fewest
// ranks, if a migration from `core` to it makes their numbers more even.
std::optional<int> less_crowded_core(int core, std::span<const int> cores,
                                     std::span<const int> allowed);

}  // namespace ddp::shm
