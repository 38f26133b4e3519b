#include "launcher/hosts/job_progress.hpp"

#include <algorithm>

namespace ddp::launcher {

void JobProgress::begin_round(const RoundMessage& round) {
    round_ = round;
    told_.clear();
}

void JobProgress::note(MemberId by, const ProgressMessage& progress) {
    const HostRanks* host = round_.table.find(by);
    if (host == nullptr || progress.round != round_.round) return;
    ProgressMessage& told = told_[by] = progress;
    told.running = std::min(told.running, host->slots);
}

StatusMessage JobProgress::total() const {
    StatusMessage total{.restarts = round_.restarts,
                        .hosts = static_cast<int>(round_.table.hosts.size()),
                        .workers = round_.table.world_size};
    bool is_published = false;
    for (const auto& [member, told] : told_) {
        total.running += told.running;
        const double rate = static_cast<double>(told.steps_in_1000_s) / 1000;
        if (told.step == 0 && told.steps_in_1000_s == 0) continue;
        total.step = is_published ? std::min(total.step, told.step) : told.step;
        total.steps_per_second = is_published ? std::min(total.steps_per_second, rate) : rate;
        is_published = true;
    }
    return total;
}

}  // namespace ddp::launcher
