// The logical ranks that this rank works for, one micro-batch (forward and backward) after the
// other. The model has memory for the gradients, buffers and random state of one of them, the
// current one; those of the others are kept here and, for gradients, in GradientMemory. Without
// logical ranks a rank is its only one, and nothing is kept or copied. Logical ranks are counted
// within this rank, from 0.
#pragma once

#include "reducer/memory/gradient_memory.hpp"

#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ddp::reducer {

// Buffers and random state by logical rank. Invariant: the model holds those of one logical rank,
// all others' are here.
class LogicalRankStates {
public:
    LogicalRankStates(RankState state, std::size_t logical_ranks);

    std::vector<TensorView> buffers() const;
    std::span<const NamedTensor> named_buffers() const {
        return std::span(tensors_).first(buffers_);
    }
    // All logical ranks get the buffers that the model has now.
    void share_buffers();
    // Keeps the state of one logical rank and loads that of another.
    void switch_states(std::size_t from, std::size_t to);

    std::span<const NamedTensor> named_random_state() const {
        return std::span(tensors_).subspan(buffers_);
    }
    // Of a tensor of the random state, by its index in named_random_state(): what all logical ranks
    // have, one after the other. While the model has the first one's.
    std::vector<std::byte> random_state(std::size_t which) const;
    void set_random_state(std::size_t which, std::span<const std::byte> of_all);

private:
    std::vector<NamedTensor> tensors_;  // the buffers first
    std::size_t buffers_;
    std::vector<std::vector<std::vector<std::byte>>> states_;  // empty for one
};

// Invariant: between two averages the current logical rank goes from 0 to count() - 1, and only the
// backward of the last one may send.
class LogicalRanks {
public:
    // `options.logical_ranks` as the program gave it: 0 for the size of the group.
    LogicalRanks(ProcessGroup& group, const ReducerOptions& options, RankState state);
    // From here until the destructor the group (and all that come from the same one) counts this
    // reducer, if this rank works for several logical ranks.
    void register_in_group();
    ~LogicalRanks();
    LogicalRanks(const LogicalRanks&) = delete;
    LogicalRanks& operator=(const LogicalRanks&) = delete;

    std::size_t count() const noexcept { return count_; }  // of this rank
    Shard current() const;                                 // among all logical ranks of the group
    bool is_last() const noexcept { return current_ + 1 == count_; }
    // No backward has begun since the last averages, under no_sync or not.
    bool is_at_start() const noexcept { return is_fresh_ && current_ == 0; }

    std::vector<TensorView> buffers() const { return states_.buffers(); }
    std::span<const NamedTensor> named_buffers() const { return states_.named_buffers(); }
    // All logical ranks get the buffers that the model has now.
    void share_buffers() { states_.share_buffers(); }

    // In the order of a step. The first forward gives its buffers to all logical ranks.
    void start_forward();
    void start_backward(const GradientMemory& memory);
    // The backward has ended, and nothing was sent: gradients and state of the next are loaded.
    void end_logical_rank(const GradientMemory& memory);
    // Gradients have been averaged (or given up): the first logical rank is next.
    void start_over();

    // Collective. The random state of all logical ranks, for a checkpoint; valid until the next
    // call. Empty unless the options name logical ranks. Throws UsageError while the
    // current one is not the first.
    std::vector<NamedTensor> gather_random_state();
    // What has been loaded into the tensors of the last gather_random_state().
    void load_random_state();

private:
    ProcessGroup& group_;
    std::size_t all_;    // logical ranks of the group
    std::size_t count_;  // of this rank
    bool saves_random_state_;
    LogicalRankStates states_;
    std::vector<std::vector<std::byte>> all_random_state_;  // of all logical ranks, by tensor
    // In which this reducer is counted; null: it is not.
    std::shared_ptr<std::atomic<int>> reducers_with_logical_ranks_;
    std::size_t current_ = 0;
    bool is_fresh_ = true;        // no backward yet since the last averages
    bool buffers_unseen_ = true;  // neither a forward nor a backward yet
};

}  // namespace ddp::reducer
