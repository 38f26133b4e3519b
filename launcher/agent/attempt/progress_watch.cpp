#include "launcher/agent/attempt/progress_watch.hpp"

#include "contract/rank_record.hpp"

#include <algorithm>

namespace ddp::launcher {

std::optional<ProgressWatch::Clock::time_point> ProgressWatch::next() const {
    if (watching_ == Watching::off) return std::nullopt;
    return next_;
}

std::optional<StatusMessage> ProgressWatch::look(Clock::time_point now,
                                                 const contract::ControlRegion& pages,
                                                 int running) {
    if (watching_ == Watching::off || now < next_) return std::nullopt;
    next_ = now + interval;
    StatusMessage current = slowest(pages, restarts_);
    current.workers = pages.local_ranks();
    current.running = running;
    if (current == last_) return std::nullopt;
    last_ = current;
    return current;
}

StatusMessage slowest(const contract::ControlRegion& pages, int restarts) {
    StatusMessage result{.restarts = restarts};
    bool found = false;
    for (int rank = 0; rank < pages.local_ranks(); ++rank) {
        const contract::Progress progress = contract::read_progress(pages.page(rank));
        const std::int64_t step = progress.step;
        const double rate = progress.steps_per_second;
        if (step == 0 && rate == 0) continue;
        result.step = found ? std::min(result.step, step) : step;
        result.steps_per_second = found ? std::min(result.steps_per_second, rate) : rate;
        found = true;
    }
    return result;
}

}  // namespace ddp::launcher
