// What PyTorch's flight recorder would have of ranks: their last collectives, made of their pages
// (contract/rank_record.hpp), for its analyser (torchfrtrace) and what else reads its files. Fields
// and words are those of version 2.10 of its format; what a page does not have is left out. Pure.
#pragma once

#include "contract/rank_record.hpp"

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RecordedRank {
    int rank = 0;
    contract::RankRecord record = {};
};

struct FlightFacts {
    int world_size = 1;
    std::chrono::nanoseconds to_wall_clock{0};  // of a time of steady_clock, since the epoch
};

// The text of each rank's file, in the order given: a pickle of protocol 2. A group that has all
// ranks of the job has them; another, those that are given.
std::vector<std::string> flight_records(std::span<const RecordedRank> ranks,
                                        const FlightFacts& facts);

}  // namespace ddp::launcher
