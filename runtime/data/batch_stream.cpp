// The threads of a loader, and what LoaderBase promises in <ddp/data_loader.hpp>. A thread only
// claims, prepares and delivers; an exception travels through the queue and is thrown in the
// training loop.
#include "data/batch_stream.hpp"

#include <ddp/error.hpp>

#include "data/random_permutation.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>

namespace ddp::data {

std::span<const std::size_t> BatchPlan::batch(std::size_t number) const {
    const std::size_t part_size = order.size() / parts;
    const auto part = std::span(order).subspan(number % parts * part_size, part_size);
    const std::size_t first = number / parts * batch_size;
    return part.subspan(first, std::min(batch_size, part_size - first));
}

BatchStream::Impl::Impl(BatchPlan plan, const DataLoaderOptions& options, PrepareBatch prepare)
    : plan_(std::move(plan)),
      prepare_(std::move(prepare)),
      queue_(plan_.num_batches,
             std::clamp<std::size_t>(std::max(options.prefetch_batches, options.workers), 1,
                                     std::max<std::size_t>(plan_.num_batches, 1))) {
    start_threads(std::min(options.workers, plan_.num_batches));
}

BatchStream::Impl::~Impl() { join_threads(); }

void BatchStream::Impl::start_threads(std::size_t workers) {
    try {
        threads_.reserve(workers);
        while (threads_.size() < workers) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
        const std::size_t started = threads_.size();
        join_threads();
        throw SystemError("data loader: cannot start thread " + std::to_string(started + 1) +
                              " of " + std::to_string(workers) + "; ask for fewer workers",
                          error.code().value());
    }
}

void BatchStream::Impl::join_threads() noexcept {
    queue_.close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void BatchStream::Impl::work() {
    while (const auto number = queue_.claim()) {
        BatchQueue::Item item;
        try {
            item.batch = prepare_(plan_.batch(*number));
        } catch (...) {
            item.error = std::current_exception();
        }
        queue_.deliver(*number, std::move(item));
    }
}

std::shared_ptr<void> BatchStream::Impl::next() {
    if (!threads_.empty()) return queue_.take();
    if (next_ >= plan_.num_batches) return nullptr;
    const std::size_t number = std::exchange(next_, plan_.num_batches);  // an exception is the end
    auto batch = prepare_(plan_.batch(number));
    next_ = number + 1;
    return batch;
}

BatchStream::BatchStream(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
BatchStream::BatchStream(BatchStream&&) noexcept = default;
BatchStream& BatchStream::operator=(BatchStream&&) noexcept = default;
BatchStream::~BatchStream() = default;

std::shared_ptr<void> BatchStream::next() { return impl_->next(); }

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
    epoch_ = epoch;
}

BatchStream LoaderBase::stream(Prepare prepare) const {
    const std::size_t samples = num_samples();
    std::vector<std::size_t> order;
    if (source_.order) {
        order = source_.order();
    } else if (options_.shuffle) {
        order = random_permutation(samples, static_cast<std::uint64_t>(options_.seed) +
                                                static_cast<std::uint64_t>(epoch_));
    } else {
        order.resize(samples);
        std::iota(order.begin(), order.end(), std::size_t{0});
    }
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
