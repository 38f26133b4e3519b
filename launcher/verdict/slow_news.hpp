// SlowNews: ranks that others wait for again and again, though each call ends. Each is said once,
// and when it keeps up again.
//
//   even      a rank spends as much of its time in collectives as those it shares a group with
//   suspect   in the last stretch so much less that they wait for it
//   slow      for some stretches in a row: said
//   even      again, after as many in which it was not
#pragma once

#include "launcher/report/failure_report.hpp"
#include "launcher/verdict/call_shares.hpp"
#include "launcher/verdict/process_use.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

class SlowNews {
public:
    using Time = RankState::Time;
    using Look = std::function<std::optional<ProcessUse>(int rank)>;
    static constexpr int stretches_until_said = 5;
    // Of the time: the others wait for it for so much at least; and less than so much is even.
    static constexpr double slow = 0.2;
    static constexpr double even = 0.1;

    // `resumed`: as CallShares has it. `look`: at the process of one of these ranks; asked for
    // seldom.
    std::vector<std::string> consider(Time now, std::span<const RankState> ranks, Time resumed,
                                      const Look& look);
    // What stands; of a job that has ended, what stood.
    const std::optional<SlowFacts>& facts() const { return facts_; }

private:
    using Stretch = CallShares::Stretch;
    using Seconds = std::chrono::duration<double>;

    // Of a rank; the times are those of its slow stretches in a row.
    struct Course {
        int slow_in_a_row = 0;
        int even_in_a_row = 0;
        Seconds time{};
        Seconds in_calls{};
        Seconds others_in_calls{};  // half of the others: as much, or more
        std::string text = {};      // what was said of it; empty: nothing, or it is even again
    };

    void note(const Stretch& stretch, const Look& look);
    std::vector<int> take_even();
    std::string take_slow(const Stretch& stretch, std::span<const RankState> ranks,
                          const Look& look);
    std::string what_differs_of(const std::vector<int>& slow, const std::vector<int>& others,
                                std::span<const RankState> ranks, const Look& look) const;
    void settle_facts();

    CallShares shares_;
    std::map<int, Course> courses_;         // by rank
    std::map<int, ProcessUse> first_uses_;  // of all, when one of them became a suspect
    std::optional<SlowFacts> facts_;
};

}  // namespace ddp::launcher
