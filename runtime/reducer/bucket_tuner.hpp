// Which gradients travel together as steps go by. The first plan has them in reverse order of
// registration; after the first backward they go in the order in which rank 0's gradients came;
// with `autotune` a few sizes of buckets are tried, and the one with the shortest steps is kept.
#pragma once

#include "reducer/backward_marks.hpp"
#include "reducer/bucket_plan.hpp"
#include "reducer/memory/gradient_memory.hpp"

#include <ddp/process_group.hpp>
#include <ddp/reducer_options.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ddp::reducer {

// Which bucket size makes steps shortest: tries each for a few steps. Pure, apart from the times it
// is given; the ranks agree on the scores before one is chosen.
class CapSearch {
public:
    // Sizes from 1 to 100 MiB that would cut `gradient_bytes` into different numbers of buckets.
    explicit CapSearch(std::size_t gradient_bytes);

    double cap_mb() const { return caps_[current_]; }  // to be used for the next step
    // A step with cap_mb() took so long. Afterwards cap_mb() may be another.
    void add_step(std::chrono::nanoseconds took);
    bool is_done() const noexcept { return current_ == caps_.size(); }
    // Nanoseconds of the shortest step with each cap, to be maximised over ranks...
    std::vector<double>& scores() noexcept { return scores_; }
    // ... and the cap whose score is least, then.
    double best_mb() const;

private:
    std::vector<double> caps_;
    std::vector<double> scores_;
    std::size_t current_ = 0;
    std::size_t steps_ = 0;  // with the current one
};

// Invariant: all ranks change their buckets in the same step and in the same way, as a decision
// rests only on what the ranks have agreed on or on a checkpoint that all have loaded.
class BucketTuner {
public:
    BucketTuner(std::span<const Parameter> parameters, ProcessGroup& group,
                const ReducerOptions& options);

    BucketCaps caps() const { return caps_with(cap_mb_); }  // of the buckets in use
    double bucket_cap_mb() const { return cap_mb_; }
    bool is_tuned() const noexcept { return !search_; }
    bool awaits_arrivals() const noexcept { return awaits_arrivals_; }
    // With `autotune`, for a checkpoint: the chosen cap, 0 before one is chosen. The caller may
    // load another, which ends the search at the next step.
    std::optional<NamedTensor> choice();

    // A backward that sent has ended. Both are collective where they do anything; the gradients'
    // values, after the work on the stream, are kept. The first call of order_by_arrival takes rank
    // 0's order.
    void order_by_arrival(const BackwardMarks& marks, GradientMemory& memory, Stream stream);
    void add_step(std::chrono::nanoseconds took, GradientMemory& memory, Stream stream);

private:
    BucketCaps caps_with(double cap_mb) const;
    void rebuild(GradientMemory& memory, const std::vector<std::size_t>& order, double cap_mb,
                 Stream stream);

    ProcessGroup& group_;
    double first_mb_;
    double cap_mb_;
    std::vector<std::size_t> order_;             // of the gradients in the buckets
    bool awaits_arrivals_;                       // the order is still that of registration
    std::optional<CapSearch> search_;            // until the cap is chosen
    std::optional<std::vector<double>> choice_;  // with autotune, one number; 0: not yet chosen
};

}  // namespace ddp::reducer
