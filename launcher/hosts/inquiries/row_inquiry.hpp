// RowInquiry: what the other hosts of a round show of their ranks, asked for when somebody looks at
// the job; and how these were once their workers had ended, which is told unasked. Pure.
// Invariant: a member tells of those ranks alone that the round's table gives it, each once.
#pragma once

#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/messages/messages.hpp"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <vector>

namespace ddp::launcher {

class RowInquiry {
public:
    using Time = std::chrono::steady_clock::time_point;
    static constexpr std::chrono::milliseconds time_to_answer{300};

    // What was told in the last one is forgotten.
    void begin_round(const RoundMessage& round);
    // The question for others(). While one waits for answers, nothing: they will do.
    std::optional<ShowMessage> ask(Time now);
    std::vector<MemberId> others() const;  // of the round's hosts, all but the coordinator's
    void note(MemberId by, RowsMessage message);

    // Whether no answer is to be waited for any more.
    bool is_answered(Time now) const;
    // Of hosts whose workers have ended how they were then, of others the last answers; by rank.
    std::vector<RankRow> rows() const;
    // Of the former alone: a host that was lost has told nothing of its end.
    std::vector<RankRow> rows_at_end() const;

private:
    using Told = std::map<MemberId, std::vector<RankRow>>;
    std::vector<RankRow> of_first(std::initializer_list<const Told*> told) const;

    RoundMessage round_;
    Told told_;   // of the last question
    Told ended_;  // whose workers have
    std::uint64_t question_ = 0;
    std::optional<Time> asked_;  // while answers are waited for
};

}  // namespace ddp::launcher
