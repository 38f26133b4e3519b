// How ranks have spent a stretch of time, in which all of them have called collectives: what
// CallShares tells of a host's, and hosts of theirs to the coordinator.
#pragma once

#include "launcher/verdict/network_loss.hpp"
#include "launcher/verdict/process_use.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RankPace {
    int rank = 0;           // in the job
    std::string host = {};  // where it runs; empty: here
    pid_t pid = 0;
    double in_calls = 0;                     // of its time, the part that it was in collectives
    std::vector<std::uint32_t> groups = {};  // that it is in
    std::optional<ProcessUse> use = {};      // so far, where it is to be told to others
};

struct Paces {
    std::chrono::nanoseconds time{};    // of the stretch
    std::vector<RankPace> ranks = {};   // by rank
    std::optional<TcpCounts> tcp = {};  // of the host, where it is to be told to others
};

}  // namespace ddp::launcher
