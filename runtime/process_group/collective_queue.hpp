// The collectives of a group, one at a time, in the order in which they were started. A caller that
// waits runs them, so that a blocking call costs no hand-over to another thread; without a waiter
// the queue's own thread does.
#pragma once

#include "backends/backend.hpp"
#include "base/eventcount.hpp"
#include "contract/operation_recorder.hpp"
#include "contract/rank_page.hpp"
#include "process_group/delayed_thread.hpp"
#include "process_group/operation.hpp"
#include "process_group/queue_lock.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace ddp::process_group {

class CollectiveQueue;

// Owned by its Work, which keeps it until it is completed: the queue holds a plain pointer. The
// operation refers to its queue, which may be gone once it is completed.
class CollectiveOperation : public Operation {
public:
    // What runs instead of backend.run(call, ...), for operations that are more than one call.
    using Body =
        std::function<void(backends::Backend&, std::uint64_t sequence, const base::Deadline&)>;

    CollectiveOperation(CollectiveQueue& queue, const backends::Call& call, Body&& body,
                        std::uint64_t sequence, const base::Deadline& deadline,
                        std::chrono::nanoseconds* took = nullptr)
        : queue_(queue),
          call_(call),
          body_(std::move(body)),
          sequence_(sequence),
          deadline_(deadline),
          took_(took) {}

    void wait() override;
    void wait_quietly() noexcept override;
    bool is_completed() const noexcept override {
        return completed_.load(std::memory_order_acquire);
    }

private:
    friend class CollectiveQueue;
    CollectiveQueue& queue_;  // gone, maybe, once completed
    backends::Call call_;
    Body body_;
    std::uint64_t sequence_;
    base::Deadline deadline_;
    std::chrono::nanoseconds* took_;  // null: nobody asks; the caller's, gone once completed
    std::exception_ptr error_;        // written before completed_
    std::atomic<bool> completed_{false};
};

class CollectiveQueue {
public:
    // Records each operation on `page`, which must outlive this, as one of that group.
    struct RecordedGroup {
        std::uint32_t id = 1;
        int ranks = 1;
        contract::Timeline timeline = {};
    };
    CollectiveQueue(std::shared_ptr<backends::Backend> backend, contract::ControlPage& page,
                    const RecordedGroup& group);
    // Runs what is still queued. Operations may outlive it.
    ~CollectiveQueue();

    // Throws the group's error once it has failed. `call` is what is shown of an operation with a
    // body of its own. How long the operation ran is stored in `took` before
    // it is completed, unless it fails; null: it is not measured.
    std::unique_ptr<CollectiveOperation> start(const backends::Call& call,
                                               std::chrono::milliseconds timeout,
                                               CollectiveOperation::Body&& body = {},
                                               std::chrono::nanoseconds* took = nullptr);
    // start and wait, in one: needs no thread.
    void run(const backends::Call& call, std::chrono::milliseconds timeout,
             CollectiveOperation::Body&& body = {});

private:
    friend class CollectiveOperation;
    std::unique_ptr<CollectiveOperation> enqueue(const backends::Call& call,
                                                 std::chrono::milliseconds timeout,
                                                 CollectiveOperation::Body&& body,
                                                 std::chrono::nanoseconds* took = nullptr);
    void complete(CollectiveOperation& wanted) noexcept;  // blocks until it is
    bool is_alone(const CollectiveOperation& wanted) const;
    void run_alone(std::unique_lock<QueueLock>& lock) noexcept;
    void run_front(std::unique_lock<QueueLock>& lock) noexcept;
    std::exception_ptr execute(CollectiveOperation& operation) noexcept;
    void call_backend(CollectiveOperation& operation);
    void finish(CollectiveOperation& operation, std::exception_ptr error) noexcept;
    bool run_all() noexcept;  // the thread's work; whether there was any
    // Until ready(), which looks under the lock.
    template <class Ready>
    void sleep(std::unique_lock<QueueLock>& lock, const Ready& ready);
    bool is_running() const { return running_.load(std::memory_order_acquire) != RunState::idle; }

    std::shared_ptr<backends::Backend> backend_;
    contract::ControlPage& page_;
    contract::OperationRecorder recorder_;
    QueueLock lock_;
    base::Eventcount changed_;
    std::deque<CollectiveOperation*> queue_;
    std::uint64_t sequence_ = 0;
    // `running`: some thread is inside the backend. `ending`: it has come out, and may have looked
    // for sleepers already. Begins under the lock, but may end without (run_alone).
    enum class RunState : std::uint8_t { idle, running, ending };
    std::atomic<RunState> running_{RunState::idle};
    int waiting_ = 0;  // threads in complete(), other than in run_alone
    std::exception_ptr failure_;
    std::unique_ptr<DelayedThread> thread_;  // made by the first start
};

}  // namespace ddp::process_group
