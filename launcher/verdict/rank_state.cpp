#include "launcher/verdict/rank_state.hpp"

#include <algorithm>

namespace ddp::launcher {

bool waits_for(std::chrono::nanoseconds least, const RankState& rank, RankState::Time now) {
    const contract::RankRecord& record = rank.record;
    if (rank.has_ended) return false;
    if (record.phase == contract::Phase::joining) return now - record.joined >= least;
    const bool in_transfer =
        std::ranges::any_of(record.groups, [&](const contract::GroupRecord& group) {
            return group.transfer && now - group.transfer->since >= least;
        });
    if (in_transfer) return true;
    return std::ranges::any_of(record.operations, [&](const contract::OperationRecord& one) {
        return !one.ended && now - one.started >= least;
    });
}

std::vector<CallKey> waited_calls(const std::vector<RankState>& ranks) {
    std::vector<CallKey> keys;
    for (const RankState& rank : ranks) {
        for (const contract::GroupRecord& group : rank.record.groups) {
            if (group.transfer) keys.push_back(key_of(*group.transfer));
        }
        for (const contract::OperationRecord& one : rank.record.operations) {
            if (!one.ended) keys.push_back(key_of(one));
        }
    }
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
}

}  // namespace ddp::launcher
