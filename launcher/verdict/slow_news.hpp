// SlowNews: ranks that others wait for again and again, though each call ends. Each is said once,
// and when it keeps up again.
//
//   even      a rank spends as much of its time in collectives as those it shares a group with
//   suspect   in the last stretch so much less that they wait for it
//   slow      for some stretches in a row: said
//   even      again, after as many in which it was not
#pragma once

#include "launcher/report/failure_report.hpp"
#include "launcher/verdict/rank_pace.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class SlowNews {
public:
    using Look = std::function<std::optional<ProcessUse>(int rank)>;
    static constexpr int stretches_until_said = 5;
    // Of the time: the others wait for it for so much at least; and less than so much is even.
    static constexpr double slow = 0.2;
    static constexpr double even = 0.1;

    // Where ranks spend `in_calls` of their paces, for the user.
    explicit SlowNews(const char* where = "in collectives") : where_(where) {}

    // `look`: at the process of one of these ranks; asked for seldom.
    std::vector<std::string> consider(const Paces& paces, const Look& look);
    // It has ended.
    void forget(int rank);
    // What stands.
    const std::optional<SlowFacts>& facts() const { return facts_; }

private:
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

    void note(const Paces& paces, const Look& look);
    std::vector<int> take_even();
    std::string take_slow(const Paces& paces, const Look& look);
    std::string what_differs_of(const std::vector<int>& slow, const std::vector<int>& others,
                                const Paces& paces, const Look& look) const;
    void settle_facts();

    const char* where_;
    std::map<int, Course> courses_;         // by rank
    std::map<int, ProcessUse> first_uses_;  // of all, when one of them became a suspect
    std::optional<SlowFacts> facts_;
};

}  // namespace ddp::launcher
