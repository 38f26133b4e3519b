// BatchQueue: hands batches from the threads that prepare them to the one loop that takes them, in
// order whatever thread is done first. Invariant: at most `window` batches are claimed and not yet
// taken, so the memory of a slow loop is bounded: window batches and the one in use, used ones
// included. These go back to be freed by a preparing thread: memory freed by another thread than
// the one that allocates makes malloc's lock go to and fro, which takes longer than a small batch.
//
// Waits here have no deadline: they end when a data set's own code returns, which may take as long
// as it likes, just as if the loop called it; close() ends them all.
#pragma once

#include "base/eventcount.hpp"

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace ddp::data {

class BatchQueue {
public:
    struct Item {
        std::shared_ptr<void> batch;
        std::exception_ptr error;  // set: preparing it failed
    };

    // `window` must be at least 1.
    BatchQueue(std::size_t num_batches, std::size_t window);

    // For the preparing threads. Blocks while the window is full; the number of the next batch, or
    // nothing when all are claimed or the queue is closed.
    std::optional<std::size_t> claim();
    // Each claimed batch is delivered once. An error closes the queue for further claims.
    void deliver(std::size_t number, Item item);

    // For the loop, one thread, which hands back the batch that it has done with. Blocks until the
    // next batch in order is there. Rethrows the error of preparing it; null after the last batch,
    // after an error and after close().
    std::shared_ptr<void> take(std::shared_ptr<void> used = nullptr);

    // No further claims; blocked claims and takes end.
    void close();

private:
    struct alignas(64) Slot {
        std::atomic<bool> full = false;
        Item item;  // not full: a used batch
    };
    // Threads that wait for one kind of change, and sleep when it takes long.
    struct alignas(64) WaitList {
        base::Eventcount changed;
        std::atomic<int> waker_core = -1;
        std::atomic<std::size_t> long_waits = 0;
    };

    template <class Ready>
    void wait_for(WaitList&, const Ready&);
    void wake(WaitList&);

    const std::size_t num_batches_;
    std::vector<Slot> slots_;    // batch b waits in slot b % window
    WaitList waiting_to_claim_;  // claim()
    WaitList waiting_to_take_;   // take()
    alignas(64) std::atomic<std::size_t> claimed_ = 0;
    alignas(64) std::atomic<std::size_t> taken_ = 0;
    std::atomic<bool> claims_closed_ = false;
    std::atomic<bool> takes_closed_ = false;
};

}  // namespace ddp::data
