// Operations of a group and the queue they run in. One operation at a time, in the order in which
// they were started. Whoever comes first runs them: the queue's own thread, or a caller that waits,
// so that a blocking call costs no hand-over to another thread.
#pragma once

#include "backends/backend.hpp"
#include "contract/control_page.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace ddp::process_group {

class OperationQueue;

class Operation {
public:
    Operation(std::shared_ptr<OperationQueue> queue, const backends::Call& call,
              std::uint64_t sequence, const base::Deadline& deadline)
        : queue_(std::move(queue)), call_(call), sequence_(sequence), deadline_(deadline) {}

    void wait();                   // throws its error
    void wait_quietly() noexcept;  // leaves the error to the queue
    bool is_completed() const noexcept;

private:
    friend class OperationQueue;
    std::shared_ptr<OperationQueue> queue_;
    backends::Call call_;
    std::uint64_t sequence_;
    base::Deadline deadline_;
    bool completed_ = false;  // guarded by the queue's mutex, as is the next
    std::exception_ptr error_;
};

class OperationQueue : public std::enable_shared_from_this<OperationQueue> {
public:
    // Publishes each running operation on `page`, which must outlive stop().
    OperationQueue(std::unique_ptr<backends::Backend> backend, contract::ControlPage& page);
    ~OperationQueue();

    // Throws the group's error once it has failed.
    std::shared_ptr<Operation> start(const backends::Call& call, std::chrono::milliseconds timeout);
    // Runs what is still queued, then ends the thread. Called by the group's destructor, not by the
    // operations' (they may outlive the group).
    void stop() noexcept;

    ddp::Backend backend_kind() const { return backend_->kind(); }

private:
    friend class Operation;
    void complete(Operation& wanted) noexcept;  // blocks until it is
    void run_front(std::unique_lock<std::mutex>& lock) noexcept;
    void progress() noexcept;  // the thread's body
    void publish(const Operation& operation);

    std::unique_ptr<backends::Backend> backend_;
    contract::ControlPage& page_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Operation>> queue_;
    std::uint64_t sequence_ = 0;
    bool running_ = false;  // some thread is inside the backend
    bool stopping_ = false;
    std::exception_ptr failure_;
    std::thread thread_;  // started with the first operation
};

}  // namespace ddp::process_group
