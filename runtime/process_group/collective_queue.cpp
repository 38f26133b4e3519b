#include "process_group/collective_queue.hpp"

#include "backends/call_header.hpp"

namespace ddp::process_group {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long an operation waits for its caller to come and run it; longer where callers have lately
// come, as a thread that looks in costs as much as a collective of 256 KiB. Small ones are mostly
// waited for at once.
constexpr std::size_t small_bytes = 64 * 1024;
constexpr auto small_delay = 200us;
constexpr auto large_delay = 50us;

}  // namespace

void CollectiveOperation::wait() {
    wait_quietly();
    if (error_) std::rethrow_exception(error_);
}

void CollectiveOperation::wait_quietly() noexcept {
    if (!is_completed()) queue_.complete(*this);
}

CollectiveQueue::CollectiveQueue(std::shared_ptr<backends::Backend> backend,
                                 contract::ControlPage& page, const RecordedGroup& group)
    : backend_(std::move(backend)),
      page_(page),
      recorder_(page, group.id, group.ranks, group.timeline) {}

CollectiveQueue::~CollectiveQueue() {
    run_all();
    {
        std::unique_lock lock(lock_);
        sleep(lock, [this] { return waiting_ == 0 && !is_running(); });
    }
    // Outside the lock, which the thread takes; nothing more is started by now.
    if (thread_) thread_->stop();
}

std::unique_ptr<CollectiveOperation> CollectiveQueue::start(const backends::Call& call,
                                                            std::chrono::milliseconds timeout,
                                                            CollectiveOperation::Body&& body,
                                                            std::chrono::nanoseconds* took) {
    const std::lock_guard lock(lock_);
    if (failure_) std::rethrow_exception(failure_);
    // First of all, since it may fail: no other rank has counted an operation then.
    if (!thread_) thread_ = std::make_unique<DelayedThread>([this] { return run_all(); });
    auto operation = enqueue(call, timeout, std::move(body), took);
    if (call.bytes() < small_bytes) {
        thread_->arm(small_delay);
    } else {
        thread_->arm_soon(large_delay);
    }
    return operation;
}

void CollectiveQueue::run(const backends::Call& call, std::chrono::milliseconds timeout,
                          CollectiveOperation::Body&& body) {
    std::unique_ptr<CollectiveOperation> operation;
    {
        const std::lock_guard lock(lock_);
        if (failure_) std::rethrow_exception(failure_);
        operation = enqueue(call, timeout, std::move(body));
    }
    operation->wait();
}

std::unique_ptr<CollectiveOperation> CollectiveQueue::enqueue(const backends::Call& call,
                                                              std::chrono::milliseconds timeout,
                                                              CollectiveOperation::Body&& body,
                                                              std::chrono::nanoseconds* took) {
    auto operation = std::make_unique<CollectiveOperation>(
        *this, call, std::move(body), sequence_ + 1, base::Deadline::roughly_after(timeout), took);
    queue_.push_back(operation.get());
    ++sequence_;
    return operation;
}

void CollectiveQueue::complete(CollectiveOperation& wanted) noexcept {
    std::unique_lock lock(lock_);
    if (is_alone(wanted)) return run_alone(lock);
    ++waiting_;
    while (!wanted.is_completed()) {
        if (!is_running() && !queue_.empty()) {
            run_front(lock);
        } else {
            sleep(lock,
                  [&] { return wanted.is_completed() || (!is_running() && !queue_.empty()); });
        }
    }
    --waiting_;  // what is left in the queue has armed the thread, or has its waiter
    changed_.notify_all();
}

bool CollectiveQueue::run_all() noexcept {
    std::unique_lock lock(lock_);
    const bool any = !queue_.empty();
    while (!queue_.empty()) {
        if (is_running()) {
            sleep(lock, [this] { return !is_running() || queue_.empty(); });
        } else {
            run_front(lock);
        }
    }
    return any;
}

bool CollectiveQueue::is_alone(const CollectiveOperation& wanted) const {
    return queue_.size() == 1 && queue_.front() == &wanted && !is_running() && !failure_;
}

// What nobody else waits for ends without the lock: to take it would last until all that the
// operation wrote has left this core, a good part of a small call. What is started meanwhile has
// armed the thread, or has its waiter. The look for sleepers must come before the last stores, for
// the operation and the queue may be gone after them: so `ending` comes before the look, and who
// sees it does not sleep (see sleep()).
void CollectiveQueue::run_alone(std::unique_lock<QueueLock>& lock) noexcept {
    CollectiveOperation& operation = *queue_.front();
    queue_.pop_front();
    running_.store(RunState::running, std::memory_order_relaxed);
    lock.unlock();
    std::exception_ptr error = execute(operation);
    running_.store(RunState::ending, std::memory_order_relaxed);
    if (error || changed_.has_waiters()) {
        lock.lock();
        return finish(operation, std::move(error));
    }
    operation.completed_.store(true, std::memory_order_release);
    // The operation may be gone by now; the queue is not while running_ is set.
    running_.store(RunState::idle, std::memory_order_release);
}

void CollectiveQueue::run_front(std::unique_lock<QueueLock>& lock) noexcept {
    CollectiveOperation& operation = *queue_.front();
    queue_.pop_front();
    std::exception_ptr error = failure_;
    if (!error) {
        running_.store(RunState::running, std::memory_order_relaxed);
        lock.unlock();
        error = execute(operation);
        lock.lock();
    }
    finish(operation, std::move(error));
}

std::exception_ptr CollectiveQueue::execute(CollectiveOperation& operation) noexcept {
    std::exception_ptr error;
    recorder_.started(backends::signature_of(operation.call_), operation.call_.site,
                      operation.sequence_, operation.deadline_.start());
    try {
        const auto start = operation.took_ != nullptr ? Clock::now() : Clock::time_point{};
        call_backend(operation);
        if (operation.took_ != nullptr) *operation.took_ = Clock::now() - start;
    } catch (...) {
        error = std::current_exception();
        backend_->fail();
        page_.phase.store(static_cast<std::uint32_t>(contract::Phase::failed),
                          std::memory_order_relaxed);
    }
    if (error) {
        recorder_.failed();
    } else {
        recorder_.ended();
    }
    if (operation.body_) operation.body_ = {};  // what it holds of the caller's ends here
    return error;
}

void CollectiveQueue::call_backend(CollectiveOperation& operation) {
    if (operation.body_) {
        operation.body_(*backend_, operation.sequence_, operation.deadline_);
    } else {
        backend_->run(operation.call_, operation.sequence_, operation.deadline_);
    }
}

// Under the lock.
void CollectiveQueue::finish(CollectiveOperation& operation, std::exception_ptr error) noexcept {
    running_.store(RunState::idle, std::memory_order_relaxed);
    if (error) {
        failure_ = error;
        operation.error_ = std::move(error);
    }
    operation.completed_.store(true, std::memory_order_release);
    // From here on its owner may have destroyed it.
    changed_.notify_all();
}

// A thread that runs an operation alone and misses this sleeper has stored `ending` before, which
// the fences of the eventcount make seen here: its last stores come at once, unless it has lost its
// core. All other changes are made under the lock. tests/explorer/queue_model_test.cpp checks it.
template <class Ready>
void CollectiveQueue::sleep(std::unique_lock<QueueLock>& lock, const Ready& ready) {
    for (int looks = 0; !ready(); ++looks) {
        const base::Eventcount::Key key = changed_.prepare_wait();
        // Before ready(), which looks at the operation first: both may end between its two looks.
        const bool ends = running_.load(std::memory_order_acquire) == RunState::ending;
        if (ready()) return changed_.cancel_wait();
        lock.unlock();
        if (ends) {
            changed_.cancel_wait();
            QueueLock::back_off(looks);
        } else {
            changed_.wait(key);
        }
        lock.lock();
    }
}

}  // namespace ddp::process_group
