#include "reducer/bucket_tuner.hpp"

#include "base/log.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace ddp::reducer {
namespace {

constexpr std::size_t warm_up_steps = 2;  // the first touches new memory
constexpr std::size_t timed_steps = 5;

std::size_t bytes_of(double mebibytes) {
    constexpr auto most = static_cast<double>(std::size_t{1} << 60);  // also of infinity
    return static_cast<std::size_t>(std::min(mebibytes * 1024 * 1024, most));
}

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

BucketTuner::BucketTuner(std::span<const Parameter> parameters, ProcessGroup& group,
                         const ReducerOptions& options)
    : group_(group),
      first_mb_(options.first_bucket_mb),
      cap_mb_(options.bucket_cap_mb),
      order_(reverse_order(parameters.size())),
      awaits_arrivals_(!options.find_unused_parameters) {
    if (cap_mb_ != autotune) return;
    std::size_t bytes = 0;
    for (const Parameter& parameter : parameters) bytes += parameter.grad.bytes();
    search_.emplace(bytes);
    cap_mb_ = search_->cap_mb();
    choice_.emplace(1, 0.0);
}

BucketCaps BucketTuner::caps_with(double cap_mb) const {
    return {bytes_of(first_mb_), bytes_of(cap_mb)};
}

std::optional<NamedTensor> BucketTuner::choice() {
    if (!choice_) return {};
    return NamedTensor{"bucket_cap_mb", *choice_};
}

// Rank 0's order is everyone's: gradients may come in another order on other ranks.
void BucketTuner::order_by_arrival(const BackwardMarks& marks, GradientMemory& memory,
                                   Stream stream) {
    if (!awaits_arrivals_) return;
    awaits_arrivals_ = false;
    std::vector<std::int64_t> agreed;
    for (const std::size_t parameter : marks.order()) {
        agreed.push_back(static_cast<std::int64_t>(parameter));
    }
    if (group_.size() > 1) group_.broadcast(agreed, Root{0}).wait();
    const std::vector<std::size_t> order(agreed.begin(), agreed.end());
    if (order != order_) rebuild(memory, order, cap_mb_, stream);
}

void BucketTuner::add_step(std::chrono::nanoseconds took, GradientMemory& memory, Stream stream) {
    if (!choice_) return;
    double cap_mb = choice_->front();
    if (cap_mb == 0) {
        search_->add_step(took);
        if (!search_->is_done()) {
            cap_mb = search_->cap_mb();
        } else {
            if (group_.size() > 1) group_.all_reduce(search_->scores(), ReduceOp::max).wait();
            cap_mb = choice_->front() = search_->best_mb();
        }
    }
    if (search_ && choice_->front() != 0) {
        search_.reset();
        base::log_info("reducer", "autotune has chosen bucket_cap_mb " + std::to_string(cap_mb));
    }
    if (cap_mb == cap_mb_) return;
    rebuild(memory, order_, cap_mb, stream);
    if (!search_) choice_->front() = cap_mb_;
}

// Without memory for other buckets (on any rank: all hear of it) the old ones stay.
void BucketTuner::rebuild(GradientMemory& memory, const std::vector<std::size_t>& order,
                          double cap_mb, Stream stream) {
    try {
        memory.rebuild(order, caps_with(cap_mb), stream);
        order_ = order;
        cap_mb_ = cap_mb;
    } catch (const SystemError& error) {
        base::log_warn("reducer", std::string("the buckets stay as they are: ") + error.what());
    }
}

}  // namespace ddp::reducer
