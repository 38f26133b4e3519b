// The memory that gradients had before a Reducer moved them into its buckets; the Reducer's end
// copies them back there. On the CPU a mark, which reads as NaN, tells whether the program still
// writes there, or has freed it: its old pointers would train on gradients that are no averages.
#pragma once

#include <ddp/tensor_view.hpp>

#include <cstddef>
#include <vector>

namespace ddp::reducer {

class VacatedMemory {
public:
    // A gradient that is about to move.
    void add(const TensorView& gradient) { gradients_.push_back(gradient); }
    // They have moved: gives their pages back to the system, and leaves the marks.
    void vacate() const;

    bool empty() const noexcept { return gradients_.empty(); }
    void* data(std::size_t gradient) const { return gradients_[gradient].data; }

    enum class State { untouched, written, unmapped };
    // Always untouched on a GPU.
    State state(std::size_t gradient) const;

private:
    std::vector<TensorView> gradients_;
};

}  // namespace ddp::reducer
