// The worlds of the collective tests: a process a rank.
#pragma once

#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <stdlib.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace ddp::testing {

// DDP_SHM_TUNING of the worlds that are made meanwhile.
class ScopedTuning {
public:
    explicit ScopedTuning(const char* tuning) { ::setenv("DDP_SHM_TUNING", tuning, 1); }
    ~ScopedTuning() { ::unsetenv("DDP_SHM_TUNING"); }
    ScopedTuning(const ScopedTuning&) = delete;
    ScopedTuning& operator=(const ScopedTuning&) = delete;
};
// Peers' memory is read by its address wherever there is a way.
inline constexpr const char* read_directly =
    "one_phase_bytes=0,direct_bytes_min=1,direct_bytes_max=1024M,direct_exchange_bytes_max=1024M,"
    "direct_reduction_bytes_max=1024M";

// Ranks of each host: alike or not, whole subtrees of the balanced tree or not.
inline std::vector<std::vector<int>> several_hosts() {
    return {{2, 2}, {3, 5}, {1, 2, 4}, {2, 1, 1, 1}};
}

template <class Body>
void on_worlds(std::initializer_list<int> worlds, const Body& body,
               const CallSite& where = CallSite::here()) {
    for (const int ranks : worlds) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        run_ranks(ranks, body, {}, where);
    }
}

// The body joins the group itself.
inline void run_joining_ranks(int ranks, const RankBody& body, const RunRanksOptions& options = {},
                              const CallSite& where = CallSite::here()) {
    for (const RankFailure& failure : failures_of_ranks(ranks, body, options, where)) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
}

}  // namespace ddp::testing
