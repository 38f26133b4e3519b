// What a launcher knows of a rank: its record, its process, and what is remembered of both; and
// what one host sees of all of its ranks at a moment.
#pragma once

#include "contract/rank_record.hpp"
#include "launcher/verdict/process_state.hpp"
#include "launcher/verdict/usual_times.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RankState {
    using Time = contract::OperationRecord::Time;

    int rank = 0;            // in the job
    std::string host = {};   // where it runs; empty: here
    bool has_ended = false;  // its worker
    Time started = {};       // likewise
    contract::RankRecord record = {};
    ProcessState process = {};             // all zero: nobody has looked
    std::optional<Time> held_since = {};   // it is_held() since then, as far as is known
    std::optional<double> cpu_share = {};  // of one processor, lately
};

struct Sighting {
    std::vector<RankState> ranks = {};  // by rank; some may be missing
    std::vector<UsualTime> usual = {};  // of the calls that were asked for, if it knows them
    bool is_alarm = false;              // one of them waits for too long, or is held
    bool is_held_for_debugger = false;  // one holds itself (--break-on-failure)
};

// In a collective, a transfer, or init_process_group, for so long or longer.
bool waits_for(std::chrono::nanoseconds least, const RankState& rank, RankState::Time now);
// The calls that they wait in.
std::vector<CallKey> waited_calls(const std::vector<RankState>& ranks);

}  // namespace ddp::launcher
