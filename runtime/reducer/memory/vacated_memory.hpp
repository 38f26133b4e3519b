// The memory that gradients had before a Reducer moved them into its buckets; the Reducer's end
// copies them back there. On the CPU a pattern that reads as NaN is left in it. Where it has
// changed, the program still writes there; where it cannot be read, it was freed: old pointers see
// no averages. A gradient that had no memory has null.
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
