// DataLoaderOptions: what a DataLoader is asked for besides its data set and sampler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp {

struct DataLoaderOptions {
    // Samples in a batch of THIS PROCESS. In a DistributedDataParallel job that is a rank's batch:
    // a step of all ranks sees DataLoader::global_batch_size() samples, world size times as many
    // (with logical ranks: as many of each of them, one batch after the other). DataParallel has
    // one process, so there it is the total, which is split over the devices.
    std::size_t batch_size = 1;
    bool drop_last = false;  // true: leave out the last batch when it is short
    // Only without a sampler: another order each epoch, torch.randperm of seed + epoch, as PyTorch
    // draws it since 2025 (RandpermEra::since_2025).
    bool shuffle = false;
    std::int64_t seed = 0;
    std::size_t workers = 1;           // threads that prepare; 0: the training loop does it itself
    std::size_t prefetch_batches = 2;  // at most so many are prepared ahead, or `workers` if more
    // Tensors of a batch, alone or in vectors, pairs and tuples, are moved to pinned memory, from
    // which GPUs copy faster, but for those on a GPU; a batch of another type may have a
    // pin_memory() that returns the batch to be used instead. Without a GPU nothing is done, and a
    // line of the log says so.
    bool pin_memory = false;
};

}  // namespace ddp
