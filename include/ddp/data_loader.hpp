// DataLoader: batches of a data set in a sampler's order, prepared ahead of the training loop by
// threads. An input range: `for (const auto& batch : loader)`. Source: torch.utils.data.DataLoader.
#pragma once

#include <ddp/dataset.hpp>
#include <ddp/export.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ddp {

struct DataLoaderOptions {
    // Samples in a batch of THIS RANK; a step of all ranks sees world size times as many. With
    // logical ranks: of each of them, one batch after the other.
    std::size_t batch_size = 1;
    bool drop_last = false;  // true: leave out the last batch when it is short
    // Only without a sampler: another order each epoch, torch.randperm of seed + epoch.
    bool shuffle = false;
    std::int64_t seed = 0;
    std::size_t workers = 1;           // threads that prepare; 0: the training loop does it itself
    std::size_t prefetch_batches = 2;  // at most so many are prepared ahead, or `workers` if more
};

namespace data {

// One pass over the batches.
class DDP_API BatchStream {
public:
    class Impl;
    explicit BatchStream(std::unique_ptr<Impl>) noexcept;
    BatchStream(BatchStream&&) noexcept;
    BatchStream& operator=(BatchStream&&) noexcept;
    ~BatchStream();                // waits for the batches being prepared
    std::shared_ptr<void> next();  // null after the last

private:
    std::unique_ptr<Impl> impl_;
};

// The part of the loader that needs no templates.
class DDP_API LoaderBase {
public:
    std::size_t size() const;  // batches of the sampler's epoch
    // Another order for each epoch. Throws UsageError when there is a sampler: it has a set_epoch.
    void set_epoch(std::int64_t epoch);

protected:
    struct Source {
        std::size_t dataset_size;
        std::size_t parts;  // of the order, equally long: batches come from each in turn
        // The sampler's; empty: no sampler.
        std::function<std::size_t()> size;
        std::function<std::vector<std::size_t>()> order;
    };
    using Prepare = std::function<std::shared_ptr<void>(std::span<const std::size_t> indices)>;
    LoaderBase(Source source, const DataLoaderOptions& options);
    BatchStream stream(Prepare prepare) const;

private:
    std::size_t num_samples() const;

    Source source_;
    DataLoaderOptions options_;
    std::int64_t epoch_ = 0;
};

}  // namespace data

// Borrows the data set and the sampler: both must outlive it. Each begin() is a new pass, in the
// sampler's order of that moment. Batches come in order, the same for any number of workers. An
// exception of the data set comes out of the loop when it gets to that batch. Leaving the loop
// early is fine: the threads end with the iterator.
template <Dataset Data>
class DataLoader : public data::LoaderBase {
public:
    using Batch = decltype(data::make_batch(std::declval<const Data&>(), {}));
    class Iterator;

    // Throws UsageError: batch_size 0, `shuffle` (the order is the sampler's), samples but not one
    // whole batch of them with drop_last. begin() does for an index that the data set does not
    // have.
    template <Sampler S>
    DataLoader(const Data& dataset, const S& sampler, const DataLoaderOptions& options = {})
        : LoaderBase(
              {static_cast<std::size_t>(dataset.size()), data::parts_of(sampler),
               [&sampler] { return static_cast<std::size_t>(sampler.size()); }, order_of(sampler)},
              options),
          dataset_(&dataset) {}
    // All samples: 0, 1, 2, ..., or shuffled.
    explicit DataLoader(const Data& dataset, const DataLoaderOptions& options = {})
        : LoaderBase({static_cast<std::size_t>(dataset.size()), 1, {}, {}}, options),
          dataset_(&dataset) {}
    // Temporaries would be gone before the first batch.
    template <Sampler S>
    DataLoader(const Data&&, const S&, const DataLoaderOptions& = {}) = delete;
    template <Sampler S>
    DataLoader(const Data&, const S&&, const DataLoaderOptions& = {}) = delete;
    explicit DataLoader(const Data&&, const DataLoaderOptions& = {}) = delete;

    Iterator begin() const {
        return Iterator{stream([dataset = dataset_](std::span<const std::size_t> indices) {
            return std::make_shared<Batch>(data::make_batch(*dataset, indices));
        })};
    }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    template <class S>
    static auto order_of(const S& sampler) {
        return [&sampler] { return std::vector<std::size_t>(sampler.begin(), sampler.end()); };
    }

    const Data* dataset_;
};

// Move-only; the batch belongs to it and may be moved away: `auto batch = std::move(*it)`.
template <Dataset Data>
class DataLoader<Data>::Iterator {
public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(data::BatchStream stream) : stream_(std::move(stream)) { ++*this; }
    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_.get(); }
    Iterator& operator++() {
        batch_.reset();
        batch_ = std::static_pointer_cast<Batch>(stream_.next());
        return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return batch_ == nullptr; }

private:
    data::BatchStream stream_;
    std::shared_ptr<Batch> batch_;
};

}  // namespace ddp
