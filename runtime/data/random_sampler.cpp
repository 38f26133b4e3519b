// The arithmetic of torch.utils.data.RandomSampler: permutations one after the other from one
// generator, or torch.randint. torch draws in turns of 32, which changes nothing.
#include <ddp/error.hpp>
#include <ddp/random_sampler.hpp>

#include "data/random_permutation.hpp"
#include "data/torch_generator.hpp"

#include <algorithm>
#include <string>

namespace ddp {

namespace {

// torch.randint(high, ...), which takes 64 random bits a number when `high` is large.
std::vector<std::size_t> draw(std::size_t high, std::size_t count, data::TorchGenerator& generator,
                              RandpermEra era) {
    const bool wide = high >> (era == RandpermEra::since_2025 ? 28 : 32) != 0;
    std::vector<std::size_t> numbers(count);
    for (std::size_t& number : numbers) {
        number = (wide ? generator.random64() : generator.random()) % high;
    }
    return numbers;
}

std::vector<std::size_t> permutations(std::size_t n, std::size_t count,
                                      data::TorchGenerator& generator, RandpermEra era) {
    auto numbers = data::random_permutation(n, {.count = std::min(n, count)}, generator, era);
    while (numbers.size() < count) {
        const auto more = data::random_permutation(
            n, {.count = std::min(n, count - numbers.size())}, generator, era);
        numbers.insert(numbers.end(), more.begin(), more.end());
    }
    return numbers;
}

}  // namespace

RandomSampler::RandomSampler(std::size_t dataset_size, const RandomSamplerOptions& options)
    : dataset_size_(dataset_size), options_(options) {
    if (dataset_size == 0 && options.num_samples > 0) {
        throw UsageError("random sampler: " + std::to_string(options.num_samples) +
                         " samples cannot be drawn from an empty data set; leave num_samples at 0");
    }
    if (options_.num_samples == 0) options_.num_samples = dataset_size;
}

void RandomSampler::set_epoch(std::int64_t epoch) {
    passes_.set_epoch();
    indices_valid_ = indices_valid_ && epoch == epoch_;
    epoch_ = epoch;
}

const std::vector<std::size_t>& RandomSampler::indices() const {
    if (indices_valid_) return indices_;
    // Unsigned, as in DistributedSampler.
    data::TorchGenerator generator{static_cast<std::uint64_t>(options_.seed) +
                                   static_cast<std::uint64_t>(epoch_)};
    const auto make = options_.replacement ? draw : permutations;
    indices_ = make(dataset_size_, options_.num_samples, generator, options_.randperm);
    indices_valid_ = true;
    return indices_;
}

}  // namespace ddp
