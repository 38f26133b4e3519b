// Batch norm over the batches of all ranks, as if they were one: for a net of your own, which calls
// one function in its forward and one in its backward. One collective each way. For a module of
// LibTorch: ddp::libtorch::SyncBatchNorm.
//
// Sources: torch.nn.SyncBatchNorm, whose results these are, for batches of any size on each rank,
// also none. Each rank tells mean, M2 (the sum of squared distances from that mean) and count of
// its values, and these are merged pairwise (Chan, Golub, LeVeque 1979, "Updating formulae and a
// pairwise algorithm for computing sample variances"): sums of squares would cancel. All sums are
// float64 and in a fixed order, so that a run gives the same bits each time, and statistics have
// the same bits on all ranks.
//
// Memory: float32 or float64 of the CPU, one type in a call, borrowed for the call. Elements are
// [samples, channels, ...]: 2 to Shape::max_dims dimensions, without holes.
//
// Threads: any one at a time. All ranks make the same calls in the same order, as of any collective
// of the group; a rank without samples too. Inside a backward whose gradients a Reducer averages
// over the same group they come between its buckets: in the same place on all ranks, as long as the
// ranks' backwards use the same parameters in the same order. Where they do not (a net that leaves
// out others on each rank, with find_unused_parameters), or where a call should not wait for
// the buckets before it, give it a group of its own: group.split({}), made once for all layers
// (without DDP_NCCL_SHARE, which keeps one order over both).
//
// Errors: UsageError for memory that does not fit, and, on every rank, where ranks have different
// numbers of channels (shm, Gloo), where one value a channel is all that there is, and where a
// Reducer of this group, or of one that was split from the same, works for more logical ranks than
// it has ranks: these take turns, so that there is no moment at which their batches are together.
// What collectives throw.
#pragma once

#include <ddp/export.hpp>
#include <ddp/process_group.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor_view.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace ddp {

struct BatchNormOptions {
    double eps = 1e-5;  // added to the variance
    // The part that a batch has in the running statistics; none: their average over all batches,
    // for which num_batches_tracked is needed.
    std::optional<double> momentum = 0.1;
};

// What a layer holds: [channels] each, of the input's type. What is not given: weight 1, bias 0, no
// running statistics.
struct BatchNormState {
    TensorView weight = {};
    TensorView bias = {};
    TensorView running_mean = {};
    TensorView running_var = {};                  // of unbiased variances: M2 / (count - 1)
    std::int64_t* num_batches_tracked = nullptr;  // batches so far
};

// What a forward has normalised with, for its backward.
struct BatchNormStatistics {
    std::vector<double> mean;
    std::vector<double> inverse_std;  // 1 / sqrt(M2 / count + eps)
    std::uint64_t count = 0;          // values a channel, of all ranks; 0: of no batch
};

// output = (input - mean) * inverse_std * weight + bias, by the statistics of all ranks' inputs;
// updates the running ones. `output`: the same shape; may be the input's memory, where no backward
// will need that. Blocks. Collective: one all_gather of 2 * channels + 1 numbers; in a world of one
// there is none. Where no rank has a sample, only num_batches_tracked changes.
DDP_API BatchNormStatistics sync_batch_norm_forward(const TensorView& input,
                                                    const TensorView& output,
                                                    const BatchNormState& state,
                                                    ProcessGroup& group,
                                                    const BatchNormOptions& options = {});

// For evaluation: by the running statistics, which must be there. Not collective.
DDP_API BatchNormStatistics batch_norm_evaluate(const TensorView& input, const TensorView& output,
                                                const BatchNormState& state,
                                                const BatchNormOptions& options = {});

// Of the rank's own loss. What is not given is not wanted.
struct BatchNormGradients {
    TensorView output;      // d loss / d output
    TensorView input = {};  // written; may be the memory of `output`
    // Added to: the sums over this rank's samples, to be averaged as those of any parameter.
    TensorView weight = {};
    TensorView bias = {};
};

// `input`, `state.weight`: as in the forward; `statistics`: what it returned. The gradient of the
// input is that of all ranks' losses together. Blocks. Collective where it is wanted (by all ranks
// or by none): one all_reduce of 2 * channels numbers; not after batch_norm_evaluate, nor in a
// world of one. With a Reducer that averages, losses that are means over equally large batches give
// the gradients of one process with all of them; of uneven ones, each rank's sum times
// size() / (samples of all ranks).
DDP_API void sync_batch_norm_backward(const TensorView& input,
                                      const BatchNormStatistics& statistics,
                                      const BatchNormState& state,
                                      const BatchNormGradients& gradients, ProcessGroup& group);

// The collectives alone, for a net that computes elsewhere, as on a GPU: float64, on any device of
// the group. Asynchronous, as all collectives.

// Throws UsageError where logical ranks take turns. The first of the two below calls it.
DDP_API void require_whole_batches(ProcessGroup& group);
// `mine`: of each channel the mean, then of each the M2, then the count. `all`: size() such rows.
DDP_API Work all_gather_moments(const TensorView& mine, const TensorView& all, ProcessGroup& group,
                                Stream stream = {});
// In place. Of each channel the sum of d loss / d output, then of each that of its products with
// the normalised input.
DDP_API Work all_reduce_gradient_sums(const TensorView& sums, ProcessGroup& group,
                                      Stream stream = {});

}  // namespace ddp
