// What LoaderBase promises: the checks of its options and of each pass's order.
#include <ddp/detail/loader_base.hpp>
#include <ddp/error.hpp>

#include "base/log.hpp"
#include "data/batch_stream.hpp"
#include "data/random_permutation.hpp"
#include "tensor/device/device_api.hpp"

#include <memory>
#include <numeric>
#include <string>
#include <utility>

namespace ddp::data {

LoaderBase::LoaderBase(Source source, const DataLoaderOptions& options)
    : source_(std::move(source)), options_(options) {
    if (options.batch_size == 0) {
        throw UsageError("data loader: batch_size is 0; it must be at least 1 (samples a rank)");
    }
    if (options.shuffle && source_.order) {
        throw UsageError(
            "data loader: shuffle and a sampler exclude each other; set .shuffle in the sampler's "
            "options instead");
    }
    if (options.pin_memory) {
        const device::Probe probe = device::device_api().probe();
        if (probe.devices == 0) {
            options_.pin_memory = false;
            base::log_info("data", "data loader: pin_memory does nothing without a GPU (" +
                                       probe.reason + ")");
        }
    }
    if (size() == 0 && num_samples() > 0) {
        throw UsageError("data loader: batch_size " + std::to_string(options.batch_size) +
                         " with drop_last leaves no batch of " +
                         std::to_string(num_samples() / source_.parts) +
                         " samples; make the batch smaller");
    }
}

std::size_t LoaderBase::num_samples() const {
    return source_.size ? source_.size() : source_.dataset_size;
}

std::size_t LoaderBase::size() const {
    const std::size_t samples = num_samples() / source_.parts;
    const bool short_batch = samples % options_.batch_size != 0;
    return source_.parts *
           (samples / options_.batch_size + (short_batch && !options_.drop_last ? 1 : 0));
}

void LoaderBase::set_epoch(std::int64_t epoch) {
    if (source_.order) {
        throw UsageError("data loader: the sampler decides the order; call its set_epoch instead");
    }
    passes_.set_epoch();
    epoch_ = epoch;
}

std::vector<std::size_t> LoaderBase::order() const {
    if (source_.order) return source_.order();
    if (options_.shuffle) {
        passes_.begin("data loader", epoch_);
        return random_permutation(
            source_.dataset_size,
            static_cast<std::uint64_t>(options_.seed) + static_cast<std::uint64_t>(epoch_),
            RandpermEra::since_2025);
    }
    std::vector<std::size_t> order(source_.dataset_size);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

BatchStream LoaderBase::stream(Prepare prepare) const {
    const std::size_t samples = num_samples();
    auto order = this->order();
    if (order.size() != samples) {
        throw UsageError("data loader: the sampler gave " + std::to_string(order.size()) +
                         " indices, but said " + std::to_string(samples) + " before");
    }
    for (const std::size_t index : order) {
        if (index < source_.dataset_size) continue;
        throw UsageError("data loader: the sampler gave index " + std::to_string(index) +
                         ", but the data set has " + std::to_string(source_.dataset_size) +
                         " samples; was the sampler made for another one?");
    }
    return BatchStream(std::make_unique<BatchStream::Impl>(
        BatchPlan{std::move(order), source_.parts, options_.batch_size, size()}, options_,
        std::move(prepare)));
}

}  // namespace ddp::data
