// Reducer: averages gradients over ranks while backward still computes others. For a training loop
// of your own: raw pointers, no module. Source: PyTorch's c10d::Reducer (arXiv 2006.15704).
//
// Gradients are grouped into flat buckets, at first in reverse order of registration, after the
// first backward in the order in which rank 0's gradients came; a bucket whose gradients are all
// ready starts its all-reduce, always in bucket order, so that ranks never disagree. All ranks must
// start a group's collectives in one order, those of other Reducers and the program's own among
// them; on shm and Gloo another order is a UsageError on every rank.
//
// A mistake in a backward (a gradient that never came or came twice) is found by wait(), and every
// rank then throws the same UsageError, which names rank and parameter. The reducer can be used on.
// Of a model on a GPU its rank logs it, and the next backward's wait() throws it: wrong averages
// may have been used by then, but no host waits for the others' in a step.
#pragma once

#include <ddp/export.hpp>
#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer_options.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp {

// What a rank holds beside parameters. Borrowed.
struct RankState {
    std::vector<NamedTensor> buffers;       // such as running means: rank 0's may be copied to all
    std::vector<NamedTensor> random_state;  // each (logical) rank's own
};

// Of Reducer::join.
struct JoinOptions {
    // Averages are over all ranks of the group; false: over those that still have input.
    bool divide_by_initial_world_size = true;
    bool throw_on_early_termination = false;  // all throw UsageError when the first has no input
};

class DDP_API Reducer {
    class Impl;

public:
    // Collective. Checks on every rank that all ranks hold the same parameters (count, names,
    // shapes, dtypes, devices), then copies rank 0's values to all. Borrows parameters,
    // state and group: they outlive the reducer, and parameters stay where they are; where a
    // Parameter or the group ends first, all later calls throw UsageError, but the destructor and
    // what only tells of earlier steps (num_buckets to is_tuned, was_averaged, statistics).
    // Throws UsageError, on every rank, that names the first differing parameter with both ranks'
    // descriptions; UsageError for an empty name, a name used twice, a gradient unlike its value, a
    // parameter that another reducer has; SystemError, on every rank, without memory for buckets.
    Reducer(std::span<Parameter> parameters, ProcessGroup& group,
            const ReducerOptions& options = {}, RankState state = {});
    // Waits for what is in flight; where an exception has ended a backward that sends, the group
    // ends with it, so that the others get a PeerError (CPU memory only). With
    // gradient_as_bucket_view the gradients' memory goes with it: Parameter::grad is pointed back
    // at where it was before, values copied there; where that was null, they are gone.
    ~Reducer();
    Reducer(Reducer&&) noexcept;
    Reducer& operator=(Reducer&&) noexcept;
    // Before the destructor, to read gradients that go with it: waits for what is in flight, also
    // of a backward that has not come to its end, and for all work of the model's GPU. Throws
    // BackendError of a GPU that does nothing more.
    void finish_in_flight();

    // A forward begins: with broadcast_buffers and such a state rank 0's buffers go to all ranks
    // (collective then; on a GPU on `stream`). With logical ranks all begin with the buffers of the
    // first forward, and each goes on with its own in its turns.
    void start_forward(Stream stream = {});
    // A backward begins: no gradient of it has been added yet. Needed with find_unused_parameters
    // and with logical ranks, harmless otherwise. `unused`: the parameters that this backward will
    // not mark ready on this rank (find_unused_parameters only). They count as they are: where
    // another rank has used one, it gets the average; where none has, its gradient stays untouched.
    // On a GPU they are as the work already on `stream` leaves them. Nothing of them is sent yet:
    // buckets that hold nothing else go with the first mark_ready or wait(), or before the
    // program's next collective on this thread; where no parameter is used, also before the next
    // bucket of a reducer started later, and at the end of any other's backward.
    // Again before wait(), after an exception in the trainer's backward: begins anew, on all ranks
    // alike. UsageError once a gradient was marked ready or a bucket sent: call wait() first, which
    // tells all ranks what is missing. Under no_sync gradients stay as they are by then.
    void start_backward(std::span<const std::size_t> unused = {}, Stream stream = {});
    // The gradient of this parameter is complete for this backward. Starts the all-reduce of each
    // bucket that is now complete, after the work already on `stream`. When gradients of a bucket
    // come on several streams, each waits for those before it; they live until wait(). Never blocks
    // (a comm_hook may). Throws UsageError for an index out of range.
    void mark_ready(std::size_t parameter, Stream stream = {});
    // Ends the backward. True: afterwards (on `stream`) each gradient is the average over ranks.
    // False: nothing was sent, because of no_sync or because a logical rank's turn is still to
    // come. Blocks for CPU memory. The first time, and while bucket_cap_mb is tuned, it may move
    // the gradients into other buckets. Throws UsageError on every rank for a mistake on one (on a
    // GPU for one in the backward before), and what collectives throw.
    [[nodiscard]] bool wait(Stream stream = {});

    // While it lives, nothing is sent: gradients accumulate on this rank only. The first backward
    // after it sends the sum. All ranks must do the same.
    class [[nodiscard]] DDP_API NoSync {
    public:
        ~NoSync();
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

    private:
        friend class Reducer;
        explicit NoSync(Impl& impl);
        Impl& impl_;
    };
    NoSync no_sync() { return NoSync{*impl_}; }  // UsageError when one lives already

    // For ranks with different numbers of batches: runs `train`, a loop in which each step calls
    // start_forward; a rank that is through with its loop takes part in the others' steps with
    // zeros (its gradients and optimiser are not used any more), and in the end gets values and
    // buffers from the last rank that still trained. Collective; not with logical ranks. What a
    // step throws must leave `train`, on every rank.
    void join(const std::function<void()>& train, const JoinOptions& options = {});
    // Collective: all ranks throw a UsageError that names the rank with the fewest batches, when
    // they are not equally many. For the start of an epoch without join().
    void check_batches(std::size_t batches);

    // Whose turn it is: {rank, size}, or with logical ranks the one that the next backward works
    // for. Seeds of random numbers belong to it, not to the rank.
    Shard logical_rank() const;

    std::size_t num_buckets() const noexcept;  // may change after the first backward
    // In use now; with `autotune`, the one chosen once is_tuned(). Where the order of additions
    // depends on the size of buckets (not on shm and Gloo), a run that goes on from a checkpoint
    // needs the same: state_dict() carries it there.
    double bucket_cap_mb() const noexcept;
    bool is_tuned() const noexcept;
    // For a checkpoint of all ranks; valid until the next call. Collective. With `autotune` its
    // choice, 0 before it is made: another ends the search at the next step. With logical_ranks the
    // random state of all of them, [logical_ranks, elements]; UsageError between their turns.
    std::vector<NamedTensor> state_dict();
    // What has been loaded into the tensors of the last state_dict() is this reducer's from now on.
    void load_state_dict();
    // Whether any rank had a gradient for it in the last backward that sent.
    bool was_averaged(std::size_t parameter) const;
    // With reduce_in_float32: the average, not rounded, until a backward begins. Or UsageError.
    TensorView float32_average(std::size_t parameter) const;
    // One line a bucket: its gradients in order, its bytes. The order of arrival once it is known.
    std::string describe() const;
    const StepStatistics& statistics() const noexcept;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
