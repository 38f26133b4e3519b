// The point-to-point transfers of a group: any number at once. A caller that waits for one of them
// makes progress on all; without a waiter the queue's own thread does. Beside the collectives,
// without order to them.
#pragma once

#include "backends/backend.hpp"
#include "base/recycled.hpp"
#include "contract/operation_recorder.hpp"
#include "process_group/delayed_thread.hpp"
#include "process_group/operation.hpp"
#include "process_group/queue_lock.hpp"

#include <ddp/call_site.hpp>
#include <ddp/collective_options.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace ddp::process_group {

class TransferQueue;

backends::Transfer transfer_of(const P2POp& op, const CallSite& site);

// A batch of transfers; done when all of them are.
struct TransferBatch {
    using Pending = std::unique_ptr<backends::PendingTransfer>;

    TransferBatch(const base::Deadline& deadline_, const CallSite& site_)
        : deadline(deadline_), site(site_) {}
    bool is_completed() const noexcept { return completed.load(std::memory_order_acquire); }

    base::Deadline deadline;
    CallSite site;
    std::vector<Pending, base::RecyclingAllocator<Pending>> pending;
    std::exception_ptr error;  // written before completed
    std::atomic<bool> completed{false};
};

class TransferOperation : public Operation {
public:
    TransferOperation(std::shared_ptr<TransferQueue> queue, std::shared_ptr<TransferBatch> batch)
        : queue_(std::move(queue)), batch_(std::move(batch)) {}

    void wait() override;
    void wait_quietly() noexcept override;
    bool is_completed() const noexcept override { return batch_->is_completed(); }

private:
    std::shared_ptr<TransferQueue> queue_;
    std::shared_ptr<TransferBatch> batch_;
};

class TransferQueue : public std::enable_shared_from_this<TransferQueue> {
public:
    // Records on `page`, which outlives stop(), what a rank waits in. `job_ranks`: GroupMember's.
    TransferQueue(std::shared_ptr<backends::Backend> backend, contract::ControlPage& page,
                  std::uint32_t group, std::span<const int> job_ranks,
                  contract::Timeline timeline = {});
    ~TransferQueue();

    // Throws the error of an earlier transfer once one has failed.
    std::unique_ptr<TransferOperation> start(std::span<const P2POp> transfers,
                                             std::chrono::milliseconds timeout,
                                             const CallSite& site);
    // Ends what is under way, then the thread. Called by the group's destructor, not by the
    // operations' (they may outlive the group).
    void stop() noexcept;

private:
    friend class TransferOperation;

    void complete(const TransferBatch* wanted) noexcept;  // null: all of them
    bool progress_all() noexcept;  // the thread's work; whether there was any
    void progress(std::unique_lock<QueueLock>& lock, const TransferBatch* wanted) noexcept;
    bool advance_all(bool look_at_clock) noexcept;
    void idle(std::uint64_t round) noexcept;
    void record_wait() noexcept;
    void finish(TransferBatch& batch, const std::exception_ptr& error) noexcept;
    void note_change() noexcept;
    void sleep(std::unique_lock<QueueLock>& lock);
    void wake_sleepers();

    std::shared_ptr<backends::Backend> backend_;
    QueueLock lock_;
    std::condition_variable_any changed_;
    int sleeping_ = 0;                                     // threads in changed_
    std::vector<std::shared_ptr<TransferBatch>> batches_;  // under way
    std::atomic<std::uint64_t> changes_{0};                // of batches_: added, or removed
    bool is_progressing_ = false;                          // a thread makes progress on them
    // That thread's: the batches as it last looked, which it alone finishes, and when to stop
    // giving its core away and sleep.
    std::vector<TransferBatch*> round_;
    base::Deadline::Clock::time_point yield_end_;
    std::atomic<const TransferBatch*> waited_{nullptr};  // by a thread, the first of several
    contract::TransferRecorder recorder_;
    std::vector<int> job_ranks_;
    std::exception_ptr failure_;
    std::unique_ptr<DelayedThread> thread_;  // made with the first transfer
};

}  // namespace ddp::process_group
