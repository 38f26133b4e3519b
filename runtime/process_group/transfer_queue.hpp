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
class TransferOperation : public Operation {
public:
    TransferOperation(std::shared_ptr<TransferQueue> queue, const base::Deadline& deadline)
        : queue_(std::move(queue)), deadline_(deadline) {}

    void wait() override;
    void wait_quietly() noexcept override;
    bool is_completed() const noexcept override {
        return completed_.load(std::memory_order_acquire);
    }

private:
    friend class TransferQueue;
    std::shared_ptr<TransferQueue> queue_;
    base::Deadline deadline_;
    std::vector<std::unique_ptr<backends::PendingTransfer>> pending_;
    std::exception_ptr error_;  // written before completed_
    std::atomic<bool> completed_{false};
};

class TransferQueue : public std::enable_shared_from_this<TransferQueue> {
public:
    explicit TransferQueue(std::shared_ptr<backends::Backend> backend);
    ~TransferQueue();

    // Throws the error of an earlier transfer once one has failed.
    std::shared_ptr<TransferOperation> start(std::span<const backends::Transfer> transfers,
                                             std::chrono::milliseconds timeout);
    // Ends what is under way, then the thread. As CollectiveQueue's.
    void stop() noexcept;

private:
    friend class TransferOperation;
    using Operations = std::list<std::shared_ptr<TransferOperation>>;

    void complete(TransferOperation* wanted) noexcept;  // null: all of them
    void drive(std::unique_lock<std::mutex>& lock, const TransferOperation* wanted) noexcept;
    static bool advance(TransferOperation& operation);
    void finish(const std::shared_ptr<TransferOperation>& operation, std::exception_ptr error);

    std::shared_ptr<backends::Backend> backend_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Operations operations_;  // under way
    bool driven_ = false;    // some thread moves them on
    std::exception_ptr failure_;
    std::unique_ptr<DelayedThread> thread_;  // made with the first transfer
};

}  // namespace ddp::process_group
