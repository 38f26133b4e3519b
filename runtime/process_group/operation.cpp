#include "process_group/operation.hpp"

#include "base/background_thread.hpp"

#include <ctime>

namespace ddp::process_group {
namespace {

std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

void store_header(contract::OperationHeader& header, const backends::Call& call,
                  std::uint64_t sequence) {
    constexpr auto relaxed = std::memory_order_relaxed;
    header.elements.store(call.elements, relaxed);
    header.group.store(0, relaxed);
    header.kind.store(static_cast<std::uint8_t>(call.kind), relaxed);
    header.dtype.store(static_cast<std::uint8_t>(call.dtype), relaxed);
    header.reduce_op.store(static_cast<std::uint8_t>(call.op), relaxed);
    header.root.store(call.root, relaxed);
    header.sequence.store(sequence, std::memory_order_release);
}

}  // namespace

void Operation::wait() {
    wait_quietly();
    const std::lock_guard lock(queue_->mutex_);
    if (error_) std::rethrow_exception(error_);
}

void Operation::wait_quietly() noexcept { queue_->complete(*this); }

bool Operation::is_completed() const noexcept {
    const std::lock_guard lock(queue_->mutex_);
    return completed_;
}

OperationQueue::OperationQueue(std::unique_ptr<backends::Backend> backend,
                               contract::ControlPage& page)
    : backend_(std::move(backend)), page_(page) {}

OperationQueue::~OperationQueue() { stop(); }

std::shared_ptr<Operation> OperationQueue::start(const backends::Call& call,
                                                 std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    // First of all, since it may fail: no other rank has counted an operation then.
    if (!thread_.joinable()) {
        thread_ = base::start_background_thread([this] { progress(); });
    }
    auto operation = std::make_shared<Operation>(shared_from_this(), call, ++sequence_,
                                                 base::Deadline::after(timeout));
    queue_.push_back(operation);
    changed_.notify_all();
    return operation;
}

void OperationQueue::complete(Operation& wanted) noexcept {
    std::unique_lock lock(mutex_);
    while (!wanted.completed_) {
        if (!running_ && !queue_.empty()) {
            run_front(lock);
        } else {
            changed_.wait(lock);
        }
    }
}

void OperationQueue::progress() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return !running_ && (stopping_ || !queue_.empty()); });
        if (queue_.empty()) return;
        run_front(lock);
    }
}

void OperationQueue::run_front(std::unique_lock<std::mutex>& lock) noexcept {
    const std::shared_ptr<Operation> operation = queue_.front();
    queue_.pop_front();
    std::exception_ptr error = failure_;
    if (!error) {
        running_ = true;
        lock.unlock();
        try {
            publish(*operation);
            backend_->run(operation->call_, operation->sequence_, operation->deadline_);
            page_.phase.store(static_cast<std::uint32_t>(contract::Phase::running),
                              std::memory_order_relaxed);
        } catch (...) {
            error = std::current_exception();
            page_.phase.store(static_cast<std::uint32_t>(contract::Phase::failed),
                              std::memory_order_relaxed);
        }
        lock.lock();
        running_ = false;
    }
    failure_ = error;
    operation->error_ = error;
    operation->completed_ = true;
    changed_.notify_all();
}

void OperationQueue::publish(const Operation& operation) {
    constexpr auto relaxed = std::memory_order_relaxed;
    store_header(page_.current, operation.call_, operation.sequence_);
    const std::uint64_t next = page_.ring_next.load(relaxed);
    store_header(page_.ring[next % contract::control_ring_entries], operation.call_,
                 operation.sequence_);
    page_.ring_next.store(next + 1, std::memory_order_release);
    page_.heartbeat_ns.store(monotonic_ns(), relaxed);
    page_.phase.store(static_cast<std::uint32_t>(contract::Phase::collective), relaxed);
}

void OperationQueue::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

}  // namespace ddp::process_group
