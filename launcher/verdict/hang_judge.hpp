// Who holds up the job: from what all ranks of this host record to a verdict. Pure; the time is
// handed in. Ranks on other hosts are not known: nothing is said of a group that waits for one.
#pragma once

#include "contract/rank_record.hpp"
#include "launcher/verdict/process_state.hpp"
#include "launcher/verdict/usual_times.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RankState {
    using Time = contract::OperationRecord::Time;

    int rank = 0;            // in the job
    bool has_ended = false;  // its worker
    Time started = {};       // likewise
    contract::RankRecord record = {};
    ProcessState process = {};             // all zero: nobody has looked
    std::optional<Time> held_since = {};   // it is_held() since then, as far as is known
    std::optional<double> cpu_share = {};  // of one processor, lately
};

struct Verdict {
    using Time = RankState::Time;
    enum class Kind : std::uint8_t {
        held,      // a process cannot run: it is stopped, frozen, in a debugger
        missing,   // ranks have not called what others wait in
        ahead,     // the others never will, as they have left: those who wait have called too much
        mismatch,  // ranks have called different things
        crossed,   // ranks wait for each other in different groups
        stuck,     // all are in the same call, and none gets on
    };
    Kind kind = Kind::missing;
    std::vector<int> ranks = {};    // to blame; sorted
    std::vector<int> waiting = {};  // held up by them; sorted
    std::uint32_t group = 0;        // of the call; 0: none is waited in
    std::uint64_t sequence = 0;     // its number
    Time since = {};                // they wait
    bool in_debugger = false;       // one of the ranks to blame is
    std::string text = {};          // for the user; the first line says it all

    bool is_same_as(const Verdict& other) const {
        return kind == other.kind && ranks == other.ranks && group == other.group &&
               sequence == other.sequence;
    }
};
const char* to_string(Verdict::Kind) noexcept;

// Before any rank has called anything there is nothing to learn from.
inline constexpr std::chrono::seconds patience_with_start{10};
// A disk may be slow.
inline constexpr std::chrono::seconds patience_with_checkpoint{30};
// The ranks' own backend finds most mismatches, and its errors say more.
inline constexpr std::chrono::milliseconds time_for_backend{300};

// Of a job that has failed: whether ranks have called different things, ever since their pages
// remember.
std::optional<Verdict> judge_failed(std::span<const RankState> ranks);

// By rank, all of this host. Nothing: nobody waits for longer than is usual.
std::optional<Verdict> judge(std::span<const RankState> ranks, const UsualTimes& usual,
                             Verdict::Time now);

}  // namespace ddp::launcher
