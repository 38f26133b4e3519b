// A random collective of any kind, and what it must do to the memory of each rank: a serial model
// in integer arithmetic, over values whose results are exact in every type. Each rank lays its
// buffers out in an arena with bytes around them that must not change.
#pragma once

#include "backends/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

// The same on all ranks.
struct CollectivePlan {
    backends::Collective kind = backends::Collective::barrier;
    DType dtype = DType::float32;
    ReduceOp::Kind op = ReduceOp::sum;
    int ranks = 1;
    int root = 0;
    std::size_t elements = 0;  // as in backends::Call
    // Uneven: all_gather: one a rank. all_to_all: from rank s to rank d at [s * ranks + d].
    std::vector<std::size_t> counts;
    bool in_place = false;     // where the kind allows it
    std::uint32_t values = 0;  // chooses them
    // By rank: whether its input and output lie in shared memory, and how many bytes they are off
    // an aligned place.
    struct Place {
        bool shared;
        std::size_t misalignment;
    };
    std::vector<Place> inputs, outputs;
};
std::string describe(const CollectivePlan&);

// Everything but allocate. No buffer is larger than largest_buffer(ranks, max_elements).
CollectivePlan random_collective(std::mt19937& random, int ranks, std::size_t max_elements);
// In bytes, with what lies around it.
std::size_t largest_buffer(int ranks, std::size_t max_elements);

// Two pieces of memory, each of twice the largest buffer. Without shared memory both are the same.
struct Arena {
    std::span<std::byte> ordinary, shared;
};

// One rank's part of a plan. Construction fills its memory.
class PlannedCollective {
public:
    PlannedCollective(const CollectivePlan& plan, int rank, const Arena& arena);

    backends::Call call() const;
    // The same as tensors; without memory where this rank has none.
    TensorView input() const { return view(input_); }
    TensorView output() const { return view(output_); }
    const CollectivePlan& plan() const { return plan_; }

    // After the call: how the memory differs from what the model says; empty when it does not.
    std::string wrong() const;

private:
    struct Buffer {
        std::byte* begin = nullptr;  // of what is looked at
        std::size_t first = 0;       // of the elements, in bytes from there
        std::size_t elements = 0;
        std::vector<std::byte> expected;  // all that is looked at
        void* data() const { return begin == nullptr ? nullptr : begin + first; }
    };
    Buffer place(const CollectivePlan::Place& place, const Arena& arena, std::size_t half,
                 std::size_t elements) const;
    TensorView view(const Buffer& buffer) const;
    void fill_input();
    void expect_output();

    CollectivePlan plan_;
    std::size_t rank_;
    Buffer input_;
    Buffer output_;  // in place: within the input, or around it; `expected` is the larger's then
};

}  // namespace ddp::testing
