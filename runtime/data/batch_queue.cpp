// A ring of slots under one mutex. Two conditions, so that a delivery wakes only the loop and a
// take only one preparing thread.
#include "data/batch_queue.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace ddp::data {

namespace {

// To sleep and be woken takes longer than to prepare a small batch, so it looks for a while first.
template <class Ready>
void wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
              const Ready& ready) {
    if (ready()) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds{50};
    do {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
        if (ready()) return;
    } while (std::chrono::steady_clock::now() < end);
    changed.wait(lock, ready);
}

}  // namespace

BatchQueue::BatchQueue(std::size_t num_batches, std::size_t window)
    : num_batches_(num_batches), slots_(window) {}

std::optional<std::size_t> BatchQueue::claim() {
    std::unique_lock lock(mutex_);
    wait_for(room_, lock, [this] {
        return claims_closed_ || claimed_ == num_batches_ || claimed_ < taken_ + slots_.size();
    });
    if (claims_closed_ || claimed_ == num_batches_) return std::nullopt;
    return claimed_++;
}

void BatchQueue::deliver(std::size_t number, Item item) {
    const bool failed = item.error != nullptr;
    {
        const std::lock_guard lock(mutex_);
        if (failed) claims_closed_ = true;
        slots_[number % slots_.size()] = std::move(item);
    }
    ready_.notify_one();
    if (failed) room_.notify_all();
}

std::shared_ptr<void> BatchQueue::take() {
    Item item;
    {
        std::unique_lock lock(mutex_);
        auto& slot = slots_[taken_ % slots_.size()];
        wait_for(ready_, lock,
                 [&] { return slot.has_value() || takes_closed_ || taken_ == num_batches_; });
        if (takes_closed_ || taken_ == num_batches_) return nullptr;
        item = std::move(*slot);
        slot.reset();
        ++taken_;
        if (item.error) takes_closed_ = true;
    }
    room_.notify_all();
    if (item.error) std::rethrow_exception(item.error);
    return std::move(item.batch);
}

void BatchQueue::close() {
    {
        const std::lock_guard lock(mutex_);
        claims_closed_ = true;
        takes_closed_ = true;
    }
    room_.notify_all();
    ready_.notify_all();
}

}  // namespace ddp::data
