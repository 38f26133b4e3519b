// Mean and variance of the batches of all ranks together, by torch's operators. Not for users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/sync_batch_norm.hpp>
#include <ddp/torch/detail/stream.hpp>
#include <ddp/torch/tensor.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cstdint>

namespace ddp::libtorch::detail {

// The type in which torch computes statistics.
inline torch::Tensor in_full_precision(const torch::Tensor& tensor) {
    const bool is_half =
        tensor.scalar_type() == torch::kFloat16 || tensor.scalar_type() == torch::kBFloat16;
    return is_half ? tensor.to(torch::kFloat32) : tensor;
}

// All float64, on the input's device.
struct BatchOfRanks {
    torch::Tensor mean;   // [channels]
    torch::Tensor m2;     // [channels]
    torch::Tensor count;  // [1]; 1 where it is empty
    bool is_empty = false;
    torch::Tensor variance() const { return m2 / count; }
};

// This rank's: of each channel the mean, then of each the M2, then the count.
inline torch::Tensor moments_of(const torch::Tensor& input) {
    const auto float64 = input.options().dtype(torch::kFloat64).requires_grad(false);
    const std::int64_t channels = input.size(1);
    if (input.numel() == 0) return torch::zeros({2 * channels + 1}, float64);
    const std::int64_t samples = input.numel() / channels;
    const auto count = static_cast<double>(samples);
    const auto [mean, variance] =
        torch::batch_norm_update_stats(in_full_precision(input.detach()), {}, {}, 0);
    return torch::cat({mean.to(torch::kFloat64), variance.to(torch::kFloat64) * count,
                       torch::full({1}, count, float64)});
}

// Throws UsageError, on every rank, for a single value a channel; finds out whether there is any.
// A rank with more knows without a look at what may be on a GPU.
inline void look_at_count(const torch::Tensor& input, const torch::Tensor& counts,
                          BatchOfRanks& batch) {
    if (input.numel() / std::max<std::int64_t>(input.size(1), 1) > 1) return;
    const auto count = counts.sum().item<double>();
    batch.is_empty = count == 0;
    if (count != 1) return;
    throw UsageError("libtorch: SyncBatchNorm has one value a channel, over all ranks (" +
                     describe(input) + " on this rank); that is no batch: give more, or evaluate");
}

// Collective. Merges all ranks' moments at once (Chan, Golub, LeVeque), by distances from the first
// rank's mean: no sum is large where only the values are.
inline BatchOfRanks gather_batch(const torch::Tensor& input, ProcessGroup& group) {
    const std::int64_t channels = input.size(1);
    const torch::Tensor mine = moments_of(input);
    const torch::Tensor rows = torch::empty({group.size(), mine.size(0)}, mine.options());
    const Stream stream = current_stream(tensor_device(mine));
    all_gather_moments(view(mine), view(rows), group, stream).wait(stream);
    const torch::Tensor means = rows.narrow(1, 0, channels);
    const torch::Tensor counts = rows.narrow(1, 2 * channels, 1);
    BatchOfRanks batch;
    look_at_count(input, counts, batch);
    batch.count = counts.sum(0).clamp_min(1);
    const torch::Tensor first = means[0];
    batch.mean = first + ((means - first) * counts).sum(0) / batch.count;
    batch.m2 = (rows.narrow(1, channels, channels) + (means - batch.mean).square() * counts).sum(0);
    return batch;
}

}  // namespace ddp::libtorch::detail
