// BatchQueue: hands batches from the threads that prepare them to the one loop that takes them, in
// order whatever thread is done first. Invariant: at most `window` batches are claimed and not yet
// taken, so the memory of a slow loop is bounded.
//
// Waits here have no deadline: they end when a data set's own code returns, which may take as long
// as it likes, just as if the loop called it; close() ends them all.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
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

    // For the loop. Blocks until the next batch in order is there. Rethrows the error of preparing
    // it; null after the last batch, after an error and after close().
    std::shared_ptr<void> take();

    // No further claims; blocked claims and takes end.
    void close();

private:
    std::mutex mutex_;
    std::condition_variable room_;   // for claim()
    std::condition_variable ready_;  // for take()
    const std::size_t num_batches_;
    std::vector<std::optional<Item>> slots_;  // batch b waits in slot b % window
    std::size_t claimed_ = 0;
    std::size_t taken_ = 0;
    bool claims_closed_ = false;
    bool takes_closed_ = false;
};

}  // namespace ddp::data
