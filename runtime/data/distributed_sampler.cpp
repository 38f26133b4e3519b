// The arithmetic of torch.utils.data.DistributedSampler. The padded list of indices that torch
// makes is never built: its element k is `order[k % n]`, and this rank wants every count-th one. As
// the ranks take turns, what they have had in some steps is always a beginning of that list.
#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>

#include "base/log.hpp"
#include "data/random_permutation.hpp"
#include "data/torch_generator.hpp"

#include <algorithm>
#include <string>

namespace ddp {

namespace {

std::size_t samples_a_rank(std::size_t dataset_size, std::size_t ranks, bool drop_last) {
    const std::size_t whole = dataset_size / ranks;
    return drop_last || dataset_size % ranks == 0 ? whole : whole + 1;
}

// A job that trains on nothing would end well, without a word.
void refuse_empty(std::size_t dataset_size, const DistributedSamplerOptions& options) {
    const std::string text = "distributed sampler: " + std::to_string(dataset_size) +
                             " samples leave none for each of " +
                             std::to_string(options.logical_ranks) + " ranks";
    if (options.allow_empty) return base::log_warn("data", text);
    throw UsageError(text + (dataset_size == 0 ? "; is the data there? allow_empty accepts it"
                                               : "; use fewer ranks, or leave drop_last at false "
                                                 "(allow_empty accepts it)"));
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
    if (num_samples_ == 0) refuse_empty(dataset_size, options_);
}

void DistributedSampler::set_epoch(std::int64_t epoch, std::size_t finished) {
    passes_.set_epoch();
    if (epoch == epoch_ && finished == finished_) return;
    // The sequential order has no epochs.
    indices_valid_ = indices_valid_ && !options_.shuffle && finished == finished_;
    epoch_ = epoch;
    finished_ = finished;
    num_samples_ = samples_a_rank(dataset_size_ - std::min(finished, dataset_size_),
                                  options_.logical_ranks, options_.drop_last);
}

const std::vector<std::size_t>& DistributedSampler::indices() const {
    if (!indices_valid_) {
        indices_ = {};  // before its successor takes memory
        indices_ = compute_indices();
        indices_valid_ = true;
    }
    return indices_;
}

void DistributedSampler::count_pass() const {
    if (options_.shuffle && shard_.index == 0) passes_.begin("distributed sampler", epoch_);
}

std::vector<std::size_t> DistributedSampler::compute_indices() const {
    // Unsigned: seed + epoch may pass the end of int64, where torch counts on in Python's integers.
    data::TorchGenerator generator{static_cast<std::uint64_t>(options_.seed) +
                                   static_cast<std::uint64_t>(epoch_)};
    const std::size_t first = shard_.index * parts_;
    if (options_.shuffle && parts_ == 1) {
        return data::random_permutation(dataset_size_,
                                        {finished_ + first, options_.logical_ranks, num_samples_},
                                        generator, options_.randperm);
    }
    std::vector<std::size_t> indices;
    indices.reserve(size());
    for (std::size_t part = first; part < first + parts_; ++part) {
        for (std::size_t i = 0; i < num_samples_; ++i) {
            indices.push_back((finished_ + part + i * options_.logical_ranks) % dataset_size_);
        }
    }
    if (options_.shuffle) {
        const auto order = data::random_permutation(dataset_size_, {.count = dataset_size_},
                                                    generator, options_.randperm);
        for (std::size_t& index : indices) index = order[index];
    }
    return indices;
}

}  // namespace ddp
