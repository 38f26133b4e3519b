// PeerQueue: the point-to-point transfers from this rank to one other, or the reverse, on a thread
// of its own: Gloo can wait for a message but not ask whether it has come. Invariant: transfers run
// one after the other, in the order in which they were started.
#pragma once

#include "backends/backend.hpp"
#include "backends/gloo/mesh.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace ddp::gloo {

// Counts the transfers of a backend that have finished, for callers that wait for any of them.
struct CompletionEvents {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t finished = 0;
};

// One transfer, shared by the peer queue and the caller that waits for it.
class QueuedTransfer {
public:
    QueuedTransfer(const backends::Transfer& transfer, std::shared_ptr<CompletionEvents> events)
        : transfer_(transfer), events_(std::move(events)) {}

    const backends::Transfer& transfer() const { return transfer_; }
    void finish(std::exception_ptr error) noexcept;
    bool is_finished() const { return finished_.load(std::memory_order_acquire); }
    void throw_error() const;  // of a finished one; returns when there is none
    // Until this one is finished.
    void wait();
    // Until one has finished since the count was `seen`, or until `end`. Returns the count.
    std::uint64_t wait_for_completion(std::uint64_t seen, base::Deadline::Clock::time_point end);

private:
    backends::Transfer transfer_;
    std::shared_ptr<CompletionEvents> events_;
    std::atomic<bool> finished_ = false;
    std::exception_ptr error_;
};

class PeerQueue {
public:
    // Throws SystemError when there can be no more threads.
    explicit PeerQueue(Mesh& mesh);
    // Ends the group when a transfer is under way.
    ~PeerQueue();
    PeerQueue(const PeerQueue&) = delete;
    PeerQueue& operator=(const PeerQueue&) = delete;

    void start(std::shared_ptr<QueuedTransfer> transfer);

private:
    void run() noexcept;
    void move(const backends::Transfer& transfer);

    Mesh& mesh_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<QueuedTransfer>> queue_;  // the first is under way
    bool stopping_ = false;
    std::thread thread_;
};

// What the backend hands out.
class PendingQueuedTransfer : public backends::PendingTransfer {
public:
    PendingQueuedTransfer(std::shared_ptr<Mesh> mesh, std::shared_ptr<QueuedTransfer> transfer)
        : mesh_(std::move(mesh)), transfer_(std::move(transfer)) {}
    // Of a transfer that is not done: ends the group, since the ranks' transfers no longer match.
    ~PendingQueuedTransfer() override;

    bool advance() override;
    bool is_done() const override { return done_; }
    const backends::Transfer& transfer() const override { return transfer_->transfer(); }
    void rest(std::uint64_t round) override;
    void wait_a_little(const base::Deadline& deadline) override;
    [[noreturn]] void give_up(const base::Deadline& deadline) override;

private:
    std::shared_ptr<Mesh> mesh_;
    std::shared_ptr<QueuedTransfer> transfer_;
    std::uint64_t seen_ = 0;  // of CompletionEvents
    bool done_ = false;
};

}  // namespace ddp::gloo
