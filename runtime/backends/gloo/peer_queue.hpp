// The point-to-point transfers from this rank to one other, or the reverse: one after the other, in
// the order in which they were started, on a thread of the lane. A thread because Gloo can wait for
// a message but not ask whether it has come.
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

// Counts the transfers of a backend that have finished, for those who wait for any.
struct LaneNews {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t finished = 0;
};

// One transfer, shared by the lane and by who asked for it.
class LaneTransfer {
public:
    LaneTransfer(const backends::Transfer& transfer, std::shared_ptr<LaneNews> news)
        : transfer_(transfer), news_(std::move(news)) {}

    const backends::Transfer& transfer() const { return transfer_; }
    void finish(std::exception_ptr error) noexcept;
    bool is_finished() const { return finished_.load(std::memory_order_acquire); }
    void throw_error() const;  // of a finished one; returns when there is none
    // Until this one is finished.
    void wait();
    // Until one has finished since the count was `seen`, or until `end`. Returns the count.
    std::uint64_t wait_for_news(std::uint64_t seen, base::Deadline::Clock::time_point end);

private:
    backends::Transfer transfer_;
    std::shared_ptr<LaneNews> news_;
    std::atomic<bool> finished_ = false;
    std::exception_ptr error_;
};

class Lane {
public:
    // Throws SystemError when there can be no more threads.
    explicit Lane(Mesh& mesh);
    // Ends the group when a transfer is under way.
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    void start(std::shared_ptr<LaneTransfer> transfer);

private:
    void run() noexcept;
    void move(const backends::Transfer& transfer);

    Mesh& mesh_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<LaneTransfer>> queue_;  // the first is under way
    bool stopping_ = false;
    std::thread thread_;
};

// What the backend hands out.
class PendingLaneTransfer : public backends::PendingTransfer {
public:
    PendingLaneTransfer(std::shared_ptr<Mesh> mesh, std::shared_ptr<LaneTransfer> transfer)
        : mesh_(std::move(mesh)), transfer_(std::move(transfer)) {}
    // Of a transfer that is not done: ends the group, since the ranks' transfers no longer match.
    ~PendingLaneTransfer() override;

    bool advance() override;
    bool is_done() const override { return done_; }
    void rest(std::uint64_t round) override;
    void wait_a_little(const base::Deadline& deadline) override;
    [[noreturn]] void give_up(const base::Deadline& deadline) override;

private:
    std::shared_ptr<Mesh> mesh_;
    std::shared_ptr<LaneTransfer> transfer_;
    std::uint64_t seen_ = 0;  // of LaneNews
    bool done_ = false;
};

}  // namespace ddp::gloo
