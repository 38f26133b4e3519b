#include "reducer/cap_search.hpp"

#include <algorithm>
#include <limits>

namespace ddp::reducer {
namespace {

constexpr std::size_t warm_up_steps = 2;  // the first touches new memory
constexpr std::size_t timed_steps = 5;

}  // namespace

CapSearch::CapSearch(std::size_t gradient_bytes) {
    constexpr double mib = 1024 * 1024;
    for (const double cap : {1.0, 5.0, 25.0, 100.0}) {
        caps_.push_back(cap);
        if (cap * mib >= static_cast<double>(gradient_bytes)) break;  // one bucket
    }
    scores_.assign(caps_.size(), std::numeric_limits<double>::max());
}

void CapSearch::add_step(std::chrono::nanoseconds took) {
    if (steps_ >= warm_up_steps) {
        scores_[current_] = std::min(scores_[current_], static_cast<double>(took.count()));
    }
    if (++steps_ < warm_up_steps + timed_steps) return;
    steps_ = 0;
    ++current_;
}

double CapSearch::best_mb() const {
    return caps_[static_cast<std::size_t>(std::ranges::min_element(scores_) - scores_.begin())];
}

}  // namespace ddp::reducer
