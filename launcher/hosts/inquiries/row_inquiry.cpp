#include "launcher/hosts/inquiries/row_inquiry.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {

void RowInquiry::begin_round(const RoundMessage& round) {
    round_ = round;
    told_.clear();
    ended_.clear();
    asked_.reset();
}

std::optional<ShowMessage> RowInquiry::ask(Time now) {
    if (!is_answered(now)) return std::nullopt;
    told_.clear();
    asked_ = now;
    return ShowMessage{.round = round_.round, .question = ++question_};
}

void RowInquiry::note(MemberId by, RowsMessage message) {
    const HostRanks* const host = round_.table.find(by);
    const bool is_end = message.question == unasked;
    if (host == nullptr || by == round_.coordinator || message.round != round_.round ||
        (!is_end && message.question != question_))
        return;
    std::vector<RankRow>& rows = is_end ? ended_[by] : told_[by];
    rows.clear();
    std::ranges::stable_sort(message.rows, {}, &RankRow::rank);
    for (RankRow& row : message.rows) {
        if (!host->has(row.rank) || (!rows.empty() && rows.back().rank == row.rank)) continue;
        row.host = host->host;
        rows.push_back(std::move(row));
    }
}

bool RowInquiry::is_answered(Time now) const {
    return !asked_ || now >= *asked_ + time_to_answer || told_.size() == others().size();
}

std::vector<MemberId> RowInquiry::others() const {
    std::vector<MemberId> members;
    for (const HostRanks& host : round_.table.hosts) {
        if (host.member != round_.coordinator) members.push_back(host.member);
    }
    return members;
}

std::vector<RankRow> RowInquiry::rows() const { return of_first({&ended_, &told_}); }

std::vector<RankRow> RowInquiry::rows_at_end() const { return of_first({&ended_}); }

// Of each host what the first of these has.
std::vector<RankRow> RowInquiry::of_first(std::initializer_list<const Told*> told) const {
    std::vector<RankRow> all;
    for (const HostRanks& host : round_.table.hosts) {
        for (const Told* const some : told) {
            const auto found = some->find(host.member);
            if (found == some->end()) continue;
            all.insert(all.end(), found->second.begin(), found->second.end());
            break;
        }
    }
    return all;
}

}  // namespace ddp::launcher
