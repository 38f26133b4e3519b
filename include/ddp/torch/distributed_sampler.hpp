// DistributedSampler for torch::data::make_data_loader: ddp's own, whose shards are those of
// Python's torch.utils.data.DistributedSampler. LibTorch's (DistributedRandomSampler) are not.
#pragma once

#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>
#include <ddp/shard.hpp>

#include <torch/data/samplers/base.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddp::libtorch {

// A handle: copies share one position and epoch. make_data_loader keeps a copy of its own, and
// set_epoch on the program's copy reaches it. With logical ranks batches are those of this rank's
// ones in turn. Not for several threads at once.
class DistributedSampler final : public torch::data::samplers::Sampler<> {
public:
    // Throws UsageError when shard.index >= shard.count. Usual: {size, group.shard(), {.seed = 1}}.
    DistributedSampler(std::size_t dataset_size, Shard shard,
                       const DistributedSamplerOptions& options = {})
        : state_(std::make_shared<State>(
              State{shard, options, ddp::DistributedSampler(dataset_size, shard, options)})) {}

    // Another permutation from the next pass over the loader on: call it before each.
    void set_epoch(std::int64_t epoch) {
        state_->shard_of_epoch.set_epoch(epoch);
        state_->rewind();
        state_->resumed = false;
    }
    std::int64_t epoch() const { return state_->shard_of_epoch.epoch(); }
    std::size_t size() const { return state_->shard_of_epoch.size(); }  // samples a rank

    // Called by the loader when a pass begins.
    void reset(torch::optional<std::size_t> new_size = torch::nullopt) override {
        if (new_size) {
            const std::int64_t epoch = this->epoch();
            state_->shard_of_epoch =
                ddp::DistributedSampler(*new_size, state_->shard, state_->options);
            state_->shard_of_epoch.set_epoch(epoch);
        }
        if (new_size || !state_->resumed) state_->rewind();
        state_->resumed = false;
    }

    // At most batch_size indices of this rank; nothing when the pass is over.
    torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
        const std::size_t parts = state_->shard_of_epoch.parts();
        const std::size_t of_part = size() / parts;
        const std::size_t taken = std::min(of_part - state_->position, batch_size);
        if (taken == 0) return torch::nullopt;
        const auto first =
            state_->shard_of_epoch.indices().begin() +
            static_cast<std::ptrdiff_t>(state_->logical_rank * of_part + state_->position);
        if (++state_->logical_rank == parts) {
            state_->logical_rank = 0;
            state_->position += taken;
        }
        return std::vector<std::size_t>(first, first + static_cast<std::ptrdiff_t>(taken));
    }

    // Epoch and position, counting what the loader has fetched ahead; with logical ranks that of
    // each, where the first one's turn last came. After load() the next pass goes on there. load()
    // throws UsageError for a position beyond a shard.
    void save(torch::serialize::OutputArchive& archive) const override {
        archive.write("epoch", torch::tensor(epoch(), torch::kInt64), /*is_buffer=*/true);
        archive.write("position",
                      torch::tensor(static_cast<std::int64_t>(state_->position), torch::kInt64),
                      /*is_buffer=*/true);
    }
    void load(torch::serialize::InputArchive& archive) override {
        torch::Tensor epoch = torch::empty({1}, torch::kInt64);
        torch::Tensor position = torch::empty({1}, torch::kInt64);
        archive.read("epoch", epoch, /*is_buffer=*/true);
        archive.read("position", position, /*is_buffer=*/true);
        const auto samples = position.item<std::int64_t>();
        if (samples < 0 ||
            static_cast<std::size_t>(samples) > size() / state_->shard_of_epoch.parts()) {
            throw UsageError("libtorch: the saved sampler is at sample " + std::to_string(samples) +
                             ", but this rank's shard has " + std::to_string(size()) +
                             "; was it saved with another data set or number of ranks?");
        }
        set_epoch(epoch.item<std::int64_t>());
        state_->position = static_cast<std::size_t>(samples);
        state_->resumed = true;
    }

private:
    struct State {
        Shard shard;
        DistributedSamplerOptions options;
        ddp::DistributedSampler shard_of_epoch;
        std::size_t position = 0;      // in the part of each logical rank
        std::size_t logical_rank = 0;  // whose batch is next
        bool resumed = false;          // by load(): the next reset() keeps the position
        void rewind() { position = logical_rank = 0; }
    };
    std::shared_ptr<State> state_;
};

}  // namespace ddp::libtorch
