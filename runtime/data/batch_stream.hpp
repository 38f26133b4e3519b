// One pass over the batches of a loader: the order of the samples, cut into batches, and the
// threads that prepare them. Invariant: no thread outlives it.
#pragma once

#include <ddp/detail/loader_base.hpp>
#include <ddp/device.hpp>

#include "data/batch_queue.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace ddp::data {

using PrepareBatch = std::function<std::shared_ptr<void>(std::span<const std::size_t> indices)>;

// What a pass goes through: a batch of each part in turn, in which all but the last have batch_size
// samples.
struct BatchPlan {
    std::vector<std::size_t> order;
    std::size_t parts;
    std::size_t batch_size;
    std::size_t num_batches;

    std::span<const std::size_t> batch(std::size_t number) const;
};

class __attribute__((visibility("hidden"))) BatchStream::Impl {
public:
    // workers = 0: next() prepares. Throws SystemError when a thread cannot be started.
    Impl(BatchPlan plan, const DataLoaderOptions& options, PrepareBatch prepare);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    std::shared_ptr<void> next(std::shared_ptr<void> used);

private:
    void start_threads(std::size_t workers);
    void join_threads() noexcept;
    void work();
    void prepare_batches();

    const BatchPlan plan_;
    const PrepareBatch prepare_;
    const Device device_;  // the default one where the stream was made, and so in its threads
    const int gpu_;        // CUDA's current one of the threads; -1: left as it is
    BatchQueue queue_;
    std::vector<std::thread> threads_;  // empty: next() prepares
    std::size_t next_ = 0;
};

}  // namespace ddp::data
