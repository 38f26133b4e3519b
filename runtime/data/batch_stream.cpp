// The threads of a loader. A thread only claims, prepares and delivers; an exception travels
// through the queue and is thrown in the training loop.
#include "data/batch_stream.hpp"

#include <ddp/error.hpp>

#include "base/process/background_thread.hpp"
#include "tensor/device/device_api.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace ddp::data {

namespace {

// Pinned memory is made by the current GPU's context: without one of its own a thread would open
// another context on the first GPU. A DeviceScope on a GPU makes that one current anyway.
int gpu_of_workers(const DataLoaderOptions& options) {
    if (options.workers == 0 || !options.pin_memory) return -1;
    return device::device_api().current();
}

}  // namespace

std::span<const std::size_t> BatchPlan::batch(std::size_t number) const {
    const std::size_t part_size = order.size() / parts;
    const auto part = std::span(order).subspan(number % parts * part_size, part_size);
    const std::size_t first = number / parts * batch_size;
    return part.subspan(first, std::min(batch_size, part_size - first));
}

BatchStream::Impl::Impl(BatchPlan plan, const DataLoaderOptions& options, PrepareBatch prepare)
    : plan_(std::move(plan)),
      prepare_(std::move(prepare)),
      device_(DeviceScope::current()),
      gpu_(gpu_of_workers(options)),
      queue_(plan_.num_batches,
             std::clamp<std::size_t>(std::max(options.prefetch_batches, options.workers), 1,
                                     std::max<std::size_t>(plan_.num_batches, 1))) {
    start_threads(std::min(options.workers, plan_.num_batches));
}

BatchStream::Impl::~Impl() { join_threads(); }

void BatchStream::Impl::start_threads(std::size_t workers) {
    try {
        threads_.reserve(workers);
        while (threads_.size() < workers) {
            threads_.push_back(base::start_background_thread([this] { work(); }));
        }
    } catch (const SystemError& error) {
        const std::size_t started = threads_.size();
        join_threads();
        throw SystemError("data loader: cannot start thread " + std::to_string(started + 1) +
                              " of " + std::to_string(workers) + "; ask for fewer workers",
                          error.code());
    } catch (...) {
        join_threads();
        throw;
    }
}

void BatchStream::Impl::join_threads() noexcept {
    queue_.close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

void BatchStream::Impl::work() {
    BatchQueue::Item item;
    try {
        if (gpu_ >= 0) device::device_api().use(gpu_);
        const DeviceScope scope(device_);
        return prepare_batches();
    } catch (...) {  // of the device: preparing a batch delivers what it throws
        item.error = std::current_exception();
    }
    if (const auto number = queue_.claim()) queue_.deliver(*number, std::move(item));
}

void BatchStream::Impl::prepare_batches() {
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

std::shared_ptr<void> BatchStream::Impl::next(std::shared_ptr<void> used) {
    if (!threads_.empty()) return queue_.take(std::move(used));
    used.reset();
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

std::shared_ptr<void> BatchStream::next(std::shared_ptr<void> used) {
    return impl_->next(std::move(used));
}

}  // namespace ddp::data
