// RandomSampler and SequentialSampler: the order of a DataLoader in a job of one process; with
// several ranks take DistributedSampler. Source: torch.utils.data's samplers of the same names.
#pragma once

#include <ddp/detail/epoch_passes.hpp>
#include <ddp/export.hpp>
#include <ddp/randperm_era.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp {

struct RandomSamplerOptions {
    std::int64_t seed = 0;  // only the low 32 bits of seed + epoch count
    // Draw each time from all samples. Otherwise each comes once before one comes again.
    bool replacement = false;
    std::size_t num_samples = 0;  // of an epoch; 0: as many as the data set has
    // Differs from 214,748,364 samples on; with replacement, from 2^28 on.
    RandpermEra randperm = RandpermEra::since_2025;
};

// Each epoch gives, bit for bit, what torch's RandomSampler gives with
// `generator=torch.Generator().manual_seed(seed + epoch)` made for that epoch. Not for several
// threads at once.
class DDP_API RandomSampler {
public:
    // Throws UsageError when there are samples to draw and none to draw from.
    explicit RandomSampler(std::size_t dataset_size, const RandomSamplerOptions& options = {});

    // Another order for each epoch; call it before each.
    void set_epoch(std::int64_t epoch);
    std::int64_t epoch() const noexcept { return epoch_; }

    std::size_t size() const noexcept { return options_.num_samples; }  // of an epoch
    // Computed at the first call after set_epoch; valid until the next.
    const std::vector<std::size_t>& indices() const;
    // A pass: the second without a set_epoch before it is warned of, once.
    auto begin() const {
        passes_.begin("random sampler", epoch_);
        return indices().begin();
    }
    auto end() const { return indices().end(); }

private:
    std::size_t dataset_size_;
    RandomSamplerOptions options_;
    std::int64_t epoch_ = 0;
    mutable std::vector<std::size_t> indices_;
    mutable bool indices_valid_ = false;
    mutable data::EpochPasses passes_;
};

// 0, 1, 2, ...: what a DataLoader does without a sampler.
class SequentialSampler {
public:
    // Counts up.
    class Iterator {
    public:
        using value_type = std::size_t;
        using difference_type = std::ptrdiff_t;

        Iterator() = default;
        // Begins there.
        explicit Iterator(std::size_t index) : index_(index) {}
        std::size_t operator*() const { return index_; }
        Iterator& operator++() {
            ++index_;
            return *this;
        }
        Iterator operator++(int) { return Iterator(index_++); }
        bool operator==(const Iterator& other) const = default;

    private:
        std::size_t index_ = 0;
    };

    // Of so many samples.
    explicit SequentialSampler(std::size_t dataset_size) : size_(dataset_size) {}

    std::size_t size() const noexcept { return size_; }  // samples
    Iterator begin() const { return Iterator(0); }
    Iterator end() const { return Iterator(size_); }

private:
    std::size_t size_;
};

}  // namespace ddp
