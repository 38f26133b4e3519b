// DataLoader: batches of a data set in a sampler's order, prepared ahead of the training loop by
// threads. An input range: `for (const auto& batch : loader)`. Source: torch.utils.data.DataLoader.
#pragma once

#include <ddp/collate.hpp>
#include <ddp/data_loader_options.hpp>
#include <ddp/dataset.hpp>
#include <ddp/detail/loader_base.hpp>

#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ddp {

// Borrows the data set and the sampler: both must outlive it. Each begin() is a new pass, in the
// sampler's order of that moment. Batches come in order, the same for any number of workers. An
// exception of the data set comes out of the loop when it gets to that batch. Leaving the loop
// early is fine: the threads end with the iterator. They have the default device (DeviceScope) of
// the thread that called begin().
// A data set of single samples may come with a callable that makes batches of them:
//   ddp::DataLoader loader{images, sampler, {.batch_size = 30}, [](std::vector<Image> samples) {
//       return make_batch(samples); }};
template <Dataset Data, class CollateBatch = DefaultCollate>
class DataLoader : public data::LoaderBase {
public:
    // What collate makes, or Data::batch.
    using Batch = decltype(data::make_batch(std::declval<const Data&>(), {},
                                            std::declval<const CollateBatch&>()));
    class Iterator;

    // Throws UsageError: batch_size 0, `shuffle` (the order is the sampler's), samples but not one
    // whole batch of them with drop_last. begin() does for an index that the data set does not
    // have.
    template <Sampler S>
    DataLoader(const Data& dataset, const S& sampler, const DataLoaderOptions& options = {},
               CollateBatch collate = {})
        : LoaderBase(
              {static_cast<std::size_t>(dataset.size()), data::parts_of(sampler),
               data::ranks_of(sampler),
               [&sampler] { return static_cast<std::size_t>(sampler.size()); }, order_of(sampler)},
              options),
          dataset_(&dataset),
          collate_(std::move(collate)) {}
    // All samples: 0, 1, 2, ..., or shuffled.
    explicit DataLoader(const Data& dataset, const DataLoaderOptions& options = {},
                        CollateBatch collate = {})
        : LoaderBase({static_cast<std::size_t>(dataset.size()), 1, 1, {}, {}}, options),
          dataset_(&dataset),
          collate_(std::move(collate)) {}
    // Temporaries would be gone before the first batch.
    template <Sampler S>
    DataLoader(const Data&&, const S&, const DataLoaderOptions& = {}, CollateBatch = {}) = delete;
    template <Sampler S>
    DataLoader(const Data&, const S&&, const DataLoaderOptions& = {}, CollateBatch = {}) = delete;
    explicit DataLoader(const Data&&, const DataLoaderOptions& = {}, CollateBatch = {}) = delete;

    Iterator begin() const {
        const auto prepare = [dataset = dataset_, collate = collate_,
                              pin = pins_memory()](std::span<const std::size_t> indices) {
            auto batch = std::make_shared<Batch>(data::make_batch(*dataset, indices, collate));
            if (pin) data::pin(*batch);
            return batch;
        };
        return Iterator{stream(prepare)};
    }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    template <class S>
    static auto order_of(const S& sampler) {
        return [&sampler] {
            std::vector<std::size_t> order;
            order.reserve(static_cast<std::size_t>(sampler.size()));
            for (const auto index : sampler) order.push_back(static_cast<std::size_t>(index));
            return order;
        };
    }

    const Data* dataset_;
    CollateBatch collate_;
};

// Move-only; the batch belongs to it and may be moved away: `auto batch = std::move(*it)`. What is
// left of it is destroyed after ++ by a thread of the loader, or with the iterator; on the loop's
// thread when it holds tensors of a GPU, whose context the others may not have.
template <Dataset Data, class CollateBatch>
class DataLoader<Data, CollateBatch>::Iterator {
public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    // Made by begin().
    explicit Iterator(data::BatchStream stream) : stream_(std::move(stream)) { ++*this; }
    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_.get(); }
    Iterator& operator++() {
        if (batch_ && data::is_on_gpu(*batch_)) batch_.reset();
        batch_ = std::static_pointer_cast<Batch>(stream_.next(std::move(batch_)));
        return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return batch_ == nullptr; }

private:
    data::BatchStream stream_;
    std::shared_ptr<Batch> batch_;
};

}  // namespace ddp
