// SlowNews: ranks that others wait for again and again, though each call ends. Each is said once,
// and when it keeps up again.
//
//   even      a rank spends as much of its time in collectives as the others of its group do
//   suspect   in the last stretch so much less that they wait for it
//   slow      for some stretches in a row: said
//   even      again, after as many in which it was not
#pragma once

#include "launcher/report/failure_report.hpp"
#include "launcher/verdict/call_shares.hpp"
#include "launcher/verdict/process_use.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <chrono>
#include <cstdint>
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

    // `look`: at the process of one of these ranks; asked for seldom.
    std::vector<std::string> consider(Time now, std::span<const RankState> ranks, const Look& look);
    // What stands.
    const std::optional<SlowFacts>& facts() const { return facts_; }

private:
    using Stretch = CallShares::Stretch;
    using Seconds = std::chrono::duration<double>;

    // Of a rank; the times are those of its slow stretches in a row.
    struct Course {
        int slow_in_a_row = 0;
        int even_in_a_row = 0;
        bool is_said = false;
        Seconds time{};
        Seconds in_calls{};
        Seconds others_in_calls{};  // half of the others: more
    };
    struct Group {
        std::map<int, Course> courses;         // by rank
        std::map<int, ProcessUse> first_uses;  // of all, when one of them became a suspect
        std::string text;                      // the last that was said of it
    };

    void note(const Stretch& stretch, const Look& look);
    std::vector<std::string> take_news(const Stretch& stretch, std::span<const RankState> ranks,
                                       const Look& look);
    void settle_facts();

    CallShares shares_;
    std::map<std::uint32_t, Group> groups_;
    std::optional<SlowFacts> facts_;
};

}  // namespace ddp::launcher
