// DistributedSampler: which samples this rank sees in this epoch. Bit-exact with
// torch.utils.data.DistributedSampler, compared with 1.13.1 and 2.15: with both for fewer than
// 214,748,364 samples, and with that of the era that `.randperm` names for more.
#pragma once

#include <ddp/detail/epoch_passes.hpp>
#include <ddp/export.hpp>
#include <ddp/randperm_era.hpp>
#include <ddp/shard.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp {

// How the samples are cut.
struct DistributedSamplerOptions {
    bool shuffle = true;    // another order for each epoch
    std::int64_t seed = 0;  // the same on every rank; only the low 32 bits of seed + epoch count
    // true: cut the tail so that all ranks get as many; false: repeat the head.
    bool drop_last = false;
    // The samples are cut for so many ranks, and this one gets the parts of several: see
    // ReducerOptions::logical_ranks. A multiple of the shard's count; 0: the count.
    std::size_t logical_ranks = 0;
    RandpermEra randperm = RandpermEra::since_2025;
    // A rank may have no samples at all: a warning instead of a UsageError.
    bool allow_empty = false;
};

// A range of indices below `dataset_size`. The ranks' ranges are interleaved (rank r takes r, r +
// count, ...), equally long and, but for repeated ones, disjoint. With logical ranks a range is
// made of equally long parts, one after the other; a DataLoader takes batches from them in turn.
// Not for several threads at once.
class DDP_API DistributedSampler {
public:
    // Throws UsageError when shard.index >= shard.count, when logical_ranks is no multiple, and
    // when no samples are left for a rank: an empty data set, or, with drop_last, one with fewer
    // samples than ranks.
    DistributedSampler(std::size_t dataset_size, Shard shard,
                       const DistributedSamplerOptions& options = {});

    // Another permutation for each epoch; call it before each, with the same numbers on every rank.
    // `finished`: samples of this epoch that all ranks together have had already, of whatever
    // number of ranks; the ranks of now share the rest (ddp::Progress counts them).
    void set_epoch(std::int64_t epoch, std::size_t finished = 0);
    std::int64_t epoch() const noexcept { return epoch_; }

    std::size_t size() const noexcept { return parts_ * num_samples_; }  // this rank's, left
    std::size_t parts() const noexcept { return parts_; }  // logical ranks of this rank
    std::size_t ranks() const noexcept { return options_.logical_ranks; }  // parts of all ranks
    // This rank's indices of the current epoch, in order. Computed at the first call after
    // set_epoch; valid until the next.
    const std::vector<std::size_t>& indices() const;
    // A pass over the indices. Shuffled ones want a set_epoch before each: the second pass without
    // is warned of, once, as it shows the samples in the order of the first.
    auto begin() const {
        count_pass();
        return indices().begin();
    }
    auto end() const { return indices().end(); }

private:
    void count_pass() const;
    std::vector<std::size_t> compute_indices() const;

    std::size_t dataset_size_;
    Shard shard_;
    DistributedSamplerOptions options_;
    std::int64_t epoch_ = 0;
    std::size_t finished_ = 0;
    std::size_t parts_ = 1;
    std::size_t num_samples_ = 0;  // of a part
    mutable std::vector<std::size_t> indices_;
    mutable bool indices_valid_ = false;
    mutable data::EpochPasses passes_;
};

}  // namespace ddp
