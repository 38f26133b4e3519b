// The logical ranks that this rank works for, one backward (turn) after the other. The model has
// one place for gradients, buffers and random state, in which those of the current turn lie; the
// other turns' are kept here and, for gradients, in GradientMemory. Without logical ranks there is
// one turn, and nothing is kept or copied.
#pragma once

#include "reducer/gradient_memory.hpp"

#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ddp::reducer {

// Buffers and random state by turn. Invariant: the model holds those of one turn, all others' are
// here.
class TurnState {
public:
    TurnState(RankState state, std::size_t turns);

    std::vector<TensorView> buffers() const;
    std::span<const NamedTensor> named_buffers() const {
        return std::span(tensors_).first(buffers_);
    }
    // All turns get the buffers that the model has now.
    void share_buffers();
    // Keeps the state of one turn and loads that of another.
    void change_turn(std::size_t from, std::size_t to);

    std::span<const NamedTensor> named_random_state() const {
        return std::span(tensors_).subspan(buffers_);
    }
    // Of a tensor of the random state, by its place in named_random_state(): what all turns have,
    // one after the other. While the model has the first turn's.
    std::vector<std::byte> random_state(std::size_t which) const;
    void set_random_state(std::size_t which, std::span<const std::byte> of_all_turns);

private:
    std::vector<NamedTensor> tensors_;  // the buffers first
    std::size_t buffers_;
    std::vector<std::vector<std::vector<std::byte>>> turns_;  // empty for one turn
};

// Invariant: between two averages the turns go from 0 to count() - 1, and only the backward of the
// last one may send.
class LogicalRanks {
public:
    // `options.logical_ranks` as the program gave it: 0 for the size of the group.
    LogicalRanks(ProcessGroup& group, const ReducerOptions& options, RankState state);
    // From here until the destructor the group (and all that come from the same one) knows of a
    // reducer with turns, if this rank has several.
    void announce();
    ~LogicalRanks();
    LogicalRanks(const LogicalRanks&) = delete;
    LogicalRanks& operator=(const LogicalRanks&) = delete;

    std::size_t count() const noexcept { return count_; }  // turns of this rank
    Shard current() const;                                 // among all logical ranks
    bool is_last_turn() const noexcept { return turn_ + 1 == count_; }
    // Neither a turn nor a backward under no_sync has begun since the last averages.
    bool is_at_start() const noexcept { return is_fresh_ && turn_ == 0; }

    std::vector<TensorView> buffers() const { return state_.buffers(); }
    std::span<const NamedTensor> named_buffers() const { return state_.named_buffers(); }
    // All turns get the buffers that the model has now.
    void share_buffers() { state_.share_buffers(); }

    // In the order of a step. The first forward gives its buffers to all turns.
    void start_forward();
    void start_backward(const GradientMemory& memory);
    // The backward has ended, and nothing was sent: the next turn's gradients and state are loaded.
    void end_turn(const GradientMemory& memory);
    // Gradients have been averaged (or given up): the first turn is next.
    void start_over();

    // Collective. The random state of all logical ranks, for a checkpoint; valid until the next
    // call. Empty unless the options name logical ranks. Throws UsageError between turns.
    std::vector<NamedTensor> gather_random_state();
    // What has been loaded into the tensors of the last gather_random_state().
    void load_random_state();

private:
    ProcessGroup& group_;
    std::size_t all_;    // logical ranks of the group
    std::size_t count_;  // of this rank
    bool saves_random_state_;
    TurnState state_;
    std::vector<std::vector<std::byte>> all_random_state_;  // of all logical ranks, by tensor
    // In which this reducer is counted; null: it is not.
    std::shared_ptr<std::atomic<int>> reducers_with_logical_ranks_;
    std::size_t turn_ = 0;
    bool is_fresh_ = true;        // no backward yet since the last averages
    bool buffers_unseen_ = true;  // neither a forward nor a backward yet
};

}  // namespace ddp::reducer
