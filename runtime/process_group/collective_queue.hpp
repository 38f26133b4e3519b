// The collectives of a group, one at a time, in the order in which they were started. Whoever comes
// first runs them: a caller that waits, so that a blocking call costs no hand-over to another
// thread, or else the queue's own thread.
#pragma once

#include "backends/backend.hpp"
#include "contract/control_page.hpp"
#include "process_group/delayed_thread.hpp"
#include "process_group/operation.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace ddp::process_group {

class CollectiveQueue;

class CollectiveOperation : public Operation {
public:
    // What runs instead of backend.run(call, ...), for operations that are more than one call.
    using Body =
        std::function<void(backends::Backend&, std::uint64_t sequence, const base::Deadline&)>;

    CollectiveOperation(std::shared_ptr<CollectiveQueue> queue, const backends::Call& call,
                        Body body, std::uint64_t sequence, const base::Deadline& deadline)
        : queue_(std::move(queue)),
          call_(call),
          body_(std::move(body)),
          sequence_(sequence),
          deadline_(deadline) {}

    void wait() override;
    void wait_quietly() noexcept override;
    bool is_completed() const noexcept override {
        return completed_.load(std::memory_order_acquire);
    }

private:
    friend class CollectiveQueue;
    std::shared_ptr<CollectiveQueue> queue_;
    backends::Call call_;
    Body body_;
    std::uint64_t sequence_;
    base::Deadline deadline_;
    std::exception_ptr error_;  // written before completed_
    std::atomic<bool> completed_{false};
};

class CollectiveQueue : public std::enable_shared_from_this<CollectiveQueue> {
public:
    // Publishes each running operation on `page`, which must outlive stop(), as of group `number`.
    CollectiveQueue(std::shared_ptr<backends::Backend> backend, contract::ControlPage& page,
                    std::uint32_t number);
    ~CollectiveQueue();

    // Throws the group's error once it has failed. `call` is what is shown of an operation with a
    // body of its own.
    std::shared_ptr<CollectiveOperation> start(const backends::Call& call,
                                               std::chrono::milliseconds timeout,
                                               CollectiveOperation::Body body = {});
    // Runs what is still queued, then ends the thread. Called by the group's destructor, not by the
    // operations' (they may outlive the group).
    void stop() noexcept;

private:
    friend class CollectiveOperation;
    void complete(CollectiveOperation& wanted) noexcept;  // blocks until it is
    void run_front(std::unique_lock<std::mutex>& lock) noexcept;
    void run_all() noexcept;  // the thread's work
    void publish(const CollectiveOperation& operation);

    std::shared_ptr<backends::Backend> backend_;
    contract::ControlPage& page_;
    std::uint32_t number_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<CollectiveOperation>> queue_;
    std::uint64_t sequence_ = 0;
    bool running_ = false;  // some thread is inside the backend
    std::exception_ptr failure_;
    std::unique_ptr<DelayedThread> thread_;  // made with the first operation
};

}  // namespace ddp::process_group
