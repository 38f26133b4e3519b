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
    if (error_) std::rethrow_exception(error_);
}

void TransferOperation::wait_quietly() noexcept {
    if (!is_completed()) queue_->complete(this);
}

TransferQueue::TransferQueue(std::shared_ptr<backends::Backend> backend)
    : backend_(std::move(backend)) {}

TransferQueue::~TransferQueue() { stop(); }

std::shared_ptr<TransferOperation> TransferQueue::start(
    std::span<const backends::Transfer> transfers, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (!thread_) thread_ = std::make_unique<DelayedThread>([this] { complete(nullptr); });
    auto operation =
        std::make_shared<TransferOperation>(shared_from_this(), base::Deadline::after(timeout));
    for (const backends::Transfer& transfer : transfers) {
        operation->pending_.push_back(backend_->start_transfer(transfer));
    }
    operations_.push_back(operation);
    thread_->arm(delay);
    return operation;
}

void TransferQueue::complete(TransferOperation* wanted) noexcept {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return wanted ? wanted->is_completed() : operations_.empty(); };
    while (!done()) {
        if (driven_) {
            changed_.wait(lock);
        } else {
            drive(lock, wanted);
        }
    }
    if (!operations_.empty()) thread_->arm(delay);
}

// Moves all transfers on until the wanted one is done, or, without one, all of them.
void TransferQueue::drive(std::unique_lock<std::mutex>& lock,
                          const TransferOperation* wanted) noexcept {
    driven_ = true;
    auto idle_since = base::Deadline::Clock::now();
    while (wanted ? !wanted->is_completed() : !operations_.empty()) {
        const Operations round = operations_;
        lock.unlock();
        bool moved = false;
        for (const auto& operation : round) {
            std::exception_ptr error;
            try {
                moved = advance(*operation) || moved;
            } catch (...) {
                error = std::current_exception();
            }
            if (error || operation->pending_.empty()) finish(operation, error);
        }
        const auto now = base::Deadline::Clock::now();
        if (moved) idle_since = now;
        const auto& first = round.front();
        if (now - idle_since < yield_time || first->is_completed()) {
            if (!moved) ::sched_yield();
        } else {
            try {
                first->pending_.front()->wait_a_little(first->deadline_);
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
bool TransferQueue::advance(TransferOperation& operation) {
    if (operation.is_completed()) return false;
    bool moved = false;
    for (auto& pending : operation.pending_) moved = pending->advance() || moved;
    std::erase_if(operation.pending_, [](const auto& pending) { return pending->is_done(); });
    if (!operation.pending_.empty() && operation.deadline_.passed()) {
        operation.pending_.front()->give_up(operation.deadline_);
    }
    return moved;
}

void TransferQueue::finish(const std::shared_ptr<TransferOperation>& operation,
                           std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (operation->is_completed()) return;
    if (error) failure_ = error;
    operations_.remove(operation);
    operation->pending_.clear();
    operation->error_ = error;
    operation->completed_.store(true, std::memory_order_release);
    changed_.notify_all();
}

void TransferQueue::stop() noexcept {
    if (!thread_) return;
    complete(nullptr);
    thread_->stop();
}

}  // namespace ddp::process_group
