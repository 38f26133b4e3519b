// Which bucket size makes steps shortest: tries each for a few steps. Pure, apart from the times it
// is given; the ranks agree on the scores before one is chosen.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace ddp::reducer {

class CapSearch {
public:
    // Sizes from 1 to 100 MiB that would cut `gradient_bytes` into different numbers of buckets.
    explicit CapSearch(std::size_t gradient_bytes);

    double cap_mb() const { return caps_[current_]; }  // to be used for the next step
    const std::vector<double>& caps() const noexcept { return caps_; }
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

}  // namespace ddp::reducer
