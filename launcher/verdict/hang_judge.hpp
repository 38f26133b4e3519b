// Who holds up the job: from what its ranks record to a verdict. Pure; the time is handed in. Some
// ranks may not be known, as their host has not answered: nothing is said of a group that waits for
// one of those.
#pragma once

#include "launcher/verdict/rank_state.hpp"
#include "launcher/verdict/usual_times.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

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
    bool may_end_job = true;        // with --on-hang=stop; else it is said alone
    std::string text = {};          // for the user; the first line says it all

    // Whose stacks tell what happens: those to blame, but not many, and one that waits.
    std::vector<int> worth_reading() const {
        constexpr std::size_t most = 4;
        std::vector<int> some = ranks;
        some.resize(std::min(some.size(), most));
        const auto waits = [&](int rank) { return std::ranges::count(some, rank) == 0; };
        const auto one = std::ranges::find_if(waiting, waits);
        if (one != waiting.end()) some.push_back(*one);
        return in_debugger ? std::vector<int>{} : some;
    }
    bool is_same_as(const Verdict& other) const {
        return kind == other.kind && ranks == other.ranks && group == other.group &&
               sequence == other.sequence;
    }
};
const char* to_string(Verdict::Kind) noexcept;

// Before any rank has called anything there is nothing to learn from.
inline constexpr std::chrono::seconds patience_with_start{10};
// Its waits are counted from the launch, and what comes before on the GPU may have to be compiled.
inline constexpr std::chrono::seconds patience_with_untaught_gpu{60};
// A disk may be slow.
inline constexpr std::chrono::seconds patience_with_checkpoint{30};
// The ranks' own backend finds most mismatches, and its errors say more.
inline constexpr std::chrono::milliseconds time_for_backend{300};

// Of a job that has failed: whether ranks have called different things, ever since their pages
// remember.
std::optional<Verdict> judge_failed(std::span<const RankState> ranks);

// By rank. Nothing: nobody waits for longer than is usual.
std::optional<Verdict> judge(std::span<const RankState> ranks, const Patience& usual,
                             Verdict::Time now);

}  // namespace ddp::launcher
