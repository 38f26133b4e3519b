// The arithmetic of torch.utils.data.DistributedSampler. The padded list of indices that torch
// makes is never built: its element k is `order[k % n]`, and this rank wants every count-th one. As
// the ranks take turns, what they have had in some steps is always a beginning of that list.
#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>

#include "data/random_permutation.hpp"

#include <algorithm>
#include <string>

namespace ddp {

namespace {

std::size_t samples_a_rank(std::size_t dataset_size, std::size_t ranks, bool drop_last) {
    const std::size_t whole = dataset_size / ranks;
    return drop_last || dataset_size % ranks == 0 ? whole : whole + 1;
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t dataset_size, Shard shard,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), shard_(shard), options_(options) {
    if (shard.index >= shard.count) {
        throw UsageError("distributed sampler: shard " + std::to_string(shard.index) + " of " +
                         std::to_string(shard.count) +
                         " does not exist; pass group.shard(), or an index below the count");
    }
    if (options_.logical_ranks == 0) options_.logical_ranks = shard.count;
    if (options_.logical_ranks % shard.count != 0) {
        throw UsageError("distributed sampler: " + std::to_string(options_.logical_ranks) +
                         " logical ranks cannot be shared by " + std::to_string(shard.count) +
                         " ranks; make it a multiple");
    }
    parts_ = options_.logical_ranks / shard.count;
    num_samples_ = samples_a_rank(dataset_size, options_.logical_ranks, options.drop_last);
}

void DistributedSampler::set_epoch(std::int64_t epoch, std::size_t finished) {
    if (epoch == epoch_ && finished == finished_) return;
    // The sequential order has no epochs.
    indices_valid_ = indices_valid_ && !options_.shuffle && finished == finished_;
    epoch_ = epoch;
    finished_ = finished;
    num_samples_ = samples_a_rank(dataset_size_ - std::min(finished, dataset_size_),
                                  options_.logical_ranks, options_.drop_last);
}

const std::vector<std::size_t>& DistributedSampler::indices() const {
    if (indices_valid_) return indices_;
    indices_.clear();
    for (std::size_t part = 0; part < parts_; ++part) {
        const std::size_t first = shard_.index * parts_ + part;
        for (std::size_t i = 0; i < num_samples_; ++i) {
            indices_.push_back((finished_ + first + i * options_.logical_ranks) % dataset_size_);
        }
    }
    if (options_.shuffle) {
        // Unsigned: seed + epoch may pass the end of int64, where torch counts on in Python's
        // integers.
        const auto seed =
            static_cast<std::uint64_t>(options_.seed) + static_cast<std::uint64_t>(epoch_);
        const auto order = data::random_permutation(dataset_size_, seed);
        for (std::size_t& index : indices_) index = order[index];
    }
    indices_valid_ = true;
    return indices_;
}

}  // namespace ddp
