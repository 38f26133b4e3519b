// The point-to-point transfers of a group: any number at once, moved on together by whoever waits
// for one of them, or else by the queue's own thread. Beside the collectives, without order to
// them.
#pragma once

#include "backends/backend.hpp"
#include "process_group/delayed_thread.hpp"
#include "process_group/operation.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace ddp::process_group {

class TransferQueue;

// A batch of transfers; done when all of them are.
struct TransferBatch {
    explicit TransferBatch(const base::Deadline& deadline_) : deadline(deadline_) {}
    bool is_completed() const noexcept { return completed.load(std::memory_order_acquire); }

    base::Deadline deadline;
    std::vector<std::unique_ptr<backends::PendingTransfer>> pending;
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
    explicit TransferQueue(std::shared_ptr<backends::Backend> backend);
    ~TransferQueue();

    // Throws the error of an earlier transfer once one has failed.
    std::unique_ptr<TransferOperation> start(std::span<const backends::Transfer> transfers,
                                             std::chrono::milliseconds timeout);
    // Ends what is under way, then the thread. Called by the group's destructor, not by the
    // operations' (they may outlive the group).
    void stop() noexcept;

private:
    friend class TransferOperation;
    using Batches = std::list<std::shared_ptr<TransferBatch>>;

    void complete(const TransferBatch* wanted) noexcept;  // null: all of them
    bool complete_undriven() noexcept;  // the thread's work; whether there was any
    void drive(std::unique_lock<std::mutex>& lock, const TransferBatch* wanted) noexcept;
    static bool advance(TransferBatch& batch);
    void finish(const std::shared_ptr<TransferBatch>& batch, std::exception_ptr error);

    std::shared_ptr<backends::Backend> backend_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Batches batches_;      // under way
    bool driven_ = false;  // some thread moves them on
    std::exception_ptr failure_;
    std::unique_ptr<DelayedThread> thread_;  // made with the first transfer
};

}  // namespace ddp::process_group
