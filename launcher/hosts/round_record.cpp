#include "launcher/hosts/round_record.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {

bool RoundRecord::note(MemberId member, const EndedMessage& message) {
    const HostRanks* host = round_.table.find(member);
    if (message.round != round_.round || host == nullptr) return false;
    WorkerEnd end = message.end;
    if (end.local_rank >= host->slots) return false;
    end.rank = host->first_rank + end.local_rank;
    end.host = host->host;
    if (end.error && end.error->peer && *end.error->peer >= round_.table.world_size) {
        end.error->peer.reset();
    }
    const bool has_failed = !end.status.ok() && end.stopped_with == 0 && !is_stopping_;
    const int rank = end.rank;
    ends_.insert_or_assign(rank, End{message.clock_ns, std::move(end)});
    return has_failed;
}

void RoundRecord::note(MemberId member, const DrainedMessage& message) {
    const HostRanks* host = round_.table.find(member);
    if (message.round != round_.round || host == nullptr || message.trouble.empty()) return;
    troubles_.push_back({host->host, message.trouble, std::max(1, message.exit_code)});
}

// The first counts.
void RoundRecord::note_signal(int signal) {
    if (signal_ == 0) signal_ = signal;
}

std::vector<WorkerEnd> RoundRecord::ends() const {
    std::vector<const End*> order;
    for (const auto& [rank, end] : ends_) order.push_back(&end);
    std::ranges::stable_sort(order, {}, [](const End* end) { return end->clock_ns; });
    std::vector<WorkerEnd> ends;
    ends.reserve(order.size());
    for (const End* end : order) ends.push_back(end->end);
    return ends;
}

std::optional<RoundEnd> RoundRecord::take_end() {
    if (!asked_) return std::nullopt;
    RoundEnd end{.asked = *std::exchange(asked_, std::nullopt),
                 .round = round_,
                 .ends = ends(),
                 .troubles = troubles_,
                 .signal = signal_,
                 .is_successors = of_ == Of::a_lost_coordinator};
    for (const WorkerEnd& one : end.ends) end.lasted = std::max(end.lasted, one.ran_for);
    return end;
}

}  // namespace ddp::launcher
