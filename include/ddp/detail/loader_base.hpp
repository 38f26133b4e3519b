// The part of DataLoader that needs no templates: the order of a pass, cut into batches, and the
// threads that prepare them. Not for users: the members that they call are DataLoader's.
#pragma once

#include <ddp/data_loader_options.hpp>
#include <ddp/detail/epoch_passes.hpp>
#include <ddp/export.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ddp::data {

// One pass over the batches.
class DDP_API BatchStream {
public:
    class Impl;
    explicit BatchStream(std::unique_ptr<Impl>) noexcept;
    BatchStream(BatchStream&&) noexcept;
    BatchStream& operator=(BatchStream&&) noexcept;
    ~BatchStream();  // waits for the batches being prepared
    // Takes back the batch that is done with; null after the last.
    std::shared_ptr<void> next(std::shared_ptr<void> used);

private:
    std::unique_ptr<Impl> impl_;
};

class DDP_API LoaderBase {
public:
    std::size_t size() const;  // batches of the sampler's epoch
    // Samples in a step of all ranks: batch_size times the sampler's ranks, where it has some.
    std::size_t global_batch_size() const noexcept { return options_.batch_size * source_.ranks; }
    // Another order for each epoch. Throws UsageError when there is a sampler: it has a set_epoch.
    void set_epoch(std::int64_t epoch);

protected:
    struct Source {
        std::size_t dataset_size;
        std::size_t parts;  // of the order, equally long: batches come from each in turn
        std::size_t ranks;  // that share the samples
        // The sampler's; empty: no sampler.
        std::function<std::size_t()> size;
        std::function<std::vector<std::size_t>()> order;
    };
    using Prepare = std::function<std::shared_ptr<void>(std::span<const std::size_t> indices)>;
    LoaderBase(Source source, const DataLoaderOptions& options);
    // `prepare` is called by several threads at once, if so many workers were asked for.
    BatchStream stream(Prepare prepare) const;
    bool pins_memory() const noexcept { return options_.pin_memory; }  // never without a GPU

private:
    std::size_t num_samples() const;
    std::vector<std::size_t> order() const;

    Source source_;
    DataLoaderOptions options_;
    std::int64_t epoch_ = 0;
    mutable EpochPasses passes_;
};

}  // namespace ddp::data
