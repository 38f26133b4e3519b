// The region of the control pages, by which the ranks of a test wait for one another beside their
// group: of a collective the last rank may still be within when the first has left it.
#pragma once

#include "contract/control_page.hpp"

#include <ddp/process_group.hpp>

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

namespace ddp::testing {

// What the launcher and its workers share; before the rank joins, which takes the descriptor.
inline contract::ControlRegion launchers_region() {
    const std::string handed_over = ::getenv("DDP_CONTROL_FD");
    const std::size_t colon = handed_over.find(':');
    const int copy = ::dup(std::stoi(handed_over));
    return contract::ControlRegion::attach(std::to_string(copy) + handed_over.substr(colon), 0);
}

inline constexpr std::int64_t mark = 77;

inline void mark_in(const contract::ControlRegion& region, const ProcessGroup& group) {
    region.page(group.rank()).step = mark;
}
inline void wait_for_marks(const contract::ControlRegion& region, const ProcessGroup& group) {
    for (int rank = 0; rank < group.size(); ++rank) {
        while (region.page(rank).step != mark) {
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        }
    }
}

// Ends `dying` by SIGKILL once all ranks have come here: none is within a call before any more.
inline void kill_when_all_are_here(const contract::ControlRegion& region, const ProcessGroup& group,
                                   int dying) {
    mark_in(region, group);
    if (group.rank() != dying) return;
    wait_for_marks(region, group);
    ::raise(SIGKILL);
}

}  // namespace ddp::testing
