// Ranks that wait for each other by turns on one core may stay there although another is idle: the
// kernel leaves what ran a moment ago where its data is warm, and each turn is such a moment. A
// wait then costs a hand-over of the core instead of one of a cache line, ten times as much. So
// ranks publish where they wait, and one of too many on a core asks for another.
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
    // The cores are those that this thread may use.
    CoreSharing(SharedRegion& region, int rank);

    // This thread begins to give its core away in a wait. May move it to another core of those that
    // it may use; those stay the same. Any thread; the others meanwhile do nothing here.
    void wait_begins();

private:
    void look(int core);
    void move_from(int core) const;

    SharedRegion& region_;
    int rank_;
    int fair_share_;  // ranks a core, rounded up
    std::atomic<bool> busy_{false};
    std::uint32_t waits_ = 0;
    int crowded_looks_ = 0;            // in a row
    std::vector<std::uint32_t> seen_;  // the places of all ranks at the last look
};

// The core among `allowed` with the fewest of the ranks that are on `cores` (-1: nowhere), if
// going there from `core` leaves the two more even than they are.
std::optional<int> less_crowded_core(int core, std::span<const int> cores,
                                     std::span<const int> allowed);

}  // namespace ddp::shm
