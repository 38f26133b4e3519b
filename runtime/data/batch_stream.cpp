// The threads of a loader. A thread only claims, prepares and delivers; an exception travels
// through the queue and is thrown in the training loop.
#include "data/batch_stream.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <exception>
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

}  // namespace ddp::data
