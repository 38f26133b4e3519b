#include "process_group/transfer_queue.hpp"

#include <sched.h>

namespace ddp::process_group {
namespace {

using namespace std::chrono_literals;

constexpr auto delay = 50us;
constexpr auto yield_time = 1ms;

}  // namespace

void TransferOperation::wait() {
    wait_quietly();
    if (batch_->error) std::rethrow_exception(batch_->error);
}

void TransferOperation::wait_quietly() noexcept {
    if (!is_completed()) queue_->complete(batch_.get());
}

TransferQueue::TransferQueue(std::shared_ptr<backends::Backend> backend)
    : backend_(std::move(backend)) {}

TransferQueue::~TransferQueue() { stop(); }

std::unique_ptr<TransferOperation> TransferQueue::start(
    std::span<const backends::Transfer> transfers, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (!thread_) thread_ = std::make_unique<DelayedThread>([this] { return complete_undriven(); });
    auto batch = std::make_shared<TransferBatch>(base::Deadline::after(timeout));
    for (const backends::Transfer& transfer : transfers) {
        batch->pending.push_back(backend_->start_transfer(transfer));
    }
    batches_.push_back(batch);
    thread_->arm(delay);
    return std::make_unique<TransferOperation>(shared_from_this(), std::move(batch));
}

void TransferQueue::complete(const TransferBatch* wanted) noexcept {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return wanted ? wanted->is_completed() : batches_.empty(); };
    while (!done()) {
        if (driven_) {
            changed_.wait(lock);
        } else {
            drive(lock, wanted);
        }
    }
    if (!batches_.empty()) thread_->arm(delay);
}

// Who drives moves all of them on, and arms the thread for those that it leaves.
bool TransferQueue::complete_undriven() noexcept {
    std::unique_lock lock(mutex_);
    if (driven_ || batches_.empty()) return false;
    drive(lock, nullptr);
    return true;
}

// Moves all transfers on until the wanted one is done, or, without one, all of them.
void TransferQueue::drive(std::unique_lock<std::mutex>& lock,
                          const TransferBatch* wanted) noexcept {
    driven_ = true;
    auto idle_since = base::Deadline::Clock::now();
    while (wanted ? !wanted->is_completed() : !batches_.empty()) {
        const Batches round = batches_;
        lock.unlock();
        bool moved = false;
        for (const auto& batch : round) {
            std::exception_ptr error;
            try {
                moved = advance(*batch) || moved;
            } catch (...) {
                error = std::current_exception();
            }
            if (error || batch->pending.empty()) finish(batch, error);
        }
        const auto now = base::Deadline::Clock::now();
        if (moved) idle_since = now;
        const auto& first = round.front();
        if (now - idle_since < yield_time || first->is_completed()) {
            if (!moved) ::sched_yield();
        } else {
            try {
                first->pending.front()->wait_a_little(first->deadline);
            } catch (...) {
                finish(first, std::current_exception());
            }
        }
        lock.lock();
    }
    driven_ = false;
    changed_.notify_all();
}

// Whether anything moved. Transfers that are done are let go.
bool TransferQueue::advance(TransferBatch& batch) {
    if (batch.is_completed()) return false;
    bool moved = false;
    for (auto& pending : batch.pending) moved = pending->advance() || moved;
    std::erase_if(batch.pending, [](const auto& pending) { return pending->is_done(); });
    if (!batch.pending.empty() && batch.deadline.passed()) {
        batch.pending.front()->give_up(batch.deadline);
    }
    return moved;
}

void TransferQueue::finish(const std::shared_ptr<TransferBatch>& batch, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (batch->is_completed()) return;
    if (error) failure_ = error;
    batches_.remove(batch);
    batch->pending.clear();
    batch->error = error;
    batch->completed.store(true, std::memory_order_release);
    changed_.notify_all();
}

void TransferQueue::stop() noexcept {
    if (!thread_) return;
    complete(nullptr);
    thread_->stop();
}

}  // namespace ddp::process_group
