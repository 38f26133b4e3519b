#include "launcher/progress_watch.hpp"

#include <algorithm>

namespace ddp::launcher {

std::optional<ProgressWatch::Clock::time_point> ProgressWatch::next() const {
    if (watching_ == Watching::off) return std::nullopt;
    return next_;
}

std::optional<StatusMessage> ProgressWatch::look(Clock::time_point now,
                                                 const contract::ControlRegion& pages) {
    if (watching_ == Watching::off || now < next_) return std::nullopt;
    next_ = now + interval;
    const StatusMessage current = slowest(pages, restarts_);
    if (current == last_) return std::nullopt;
    last_ = current;
    return current;
}

StatusMessage slowest(const contract::ControlRegion& pages, int restarts) {
    StatusMessage result{restarts, 0, 0};
    bool found = false;
    for (std::uint32_t rank = 0; rank < pages.header().local_ranks; ++rank) {
        const contract::ControlPage& page = pages.page(static_cast<int>(rank));
        const std::int64_t step = page.step.load(std::memory_order_relaxed);
        const double rate = page.steps_per_second.load(std::memory_order_relaxed);
        if (step == 0 && rate == 0) continue;
        result.step = found ? std::min(result.step, step) : step;
        result.steps_per_second = found ? std::min(result.steps_per_second, rate) : rate;
        found = true;
    }
    return result;
}

}  // namespace ddp::launcher
