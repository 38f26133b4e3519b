// SilentJudge: who holds up a job whose ranks record nothing, and who slows it down. For both the
// stacks of all ranks are read now and then, by one reading at a time. Pure.
#pragma once

#include "launcher/verdict/silent/silent_pace.hpp"
#include "launcher/verdict/silent/stack_judge.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

class SilentJudge {
public:
    using Time = StackJudge::Time;

    // Each second or so, of the threads of all ranks that run: whether the stacks of all are to
    // be read. `all_run`: of the job; else nobody is slow. `use`: as SlowNews's.
    bool is_time_to_read(Time now, std::span<const RankRuns> threads, bool all_run,
                         const SlowNews::Look& use) {
        std::vector<RankRuns> first;
        std::ranges::copy_if(threads, std::back_inserter(first), &RankRuns::is_of_first);
        // Who hangs is not slow, nor is who begins.
        const bool may_be_slow = all_run && first.size() > 1 && !hang_.verdict();
        may_be_slow ? slow_.note(now, first, use) : slow_.forget();
        purpose_ = Purpose::hang;
        if (hang_.is_time_to_read(now, threads)) return true;
        if (!slow_.is_time_to_read(now) || hang_.is_between_readings()) return false;
        hang_.note_foreign_reading();
        purpose_ = Purpose::slow;
        return true;
    }
    // They have been, by rank; none: they could not be. `ended`: ranks that have, and are not read.
    void judge(Time now, std::span<const RankReading> ranks, const std::vector<int>& ended) {
        purpose_ == Purpose::slow ? slow_.judge(now, ranks) : hang_.judge(now, ranks, ended);
    }
    // Ranks record something.
    void forget() { *this = SilentJudge(); }

    const std::optional<Verdict>& verdict() const { return hang_.verdict(); }
    // Of slow ranks, for the user; mostly nothing.
    std::vector<std::string> take_news_of_slow() { return slow_.take_news(); }
    // As StackJudge's.
    std::optional<UnreadRanks> take_unread() { return hang_.take_unread(); }
    const std::optional<SlowFacts>& slow() const { return slow_.facts(); }

private:
    enum class Purpose : std::uint8_t { hang, slow };

    StackJudge hang_;
    SilentPace slow_;
    Purpose purpose_ = Purpose::hang;  // of the last reading
};

}  // namespace ddp::launcher
