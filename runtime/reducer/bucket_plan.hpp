// Which gradients travel together: a pure function, so that every rank computes the same plan and
// the rules are tested as a table. One bucket holds one dtype on one device.
#pragma once

#include <ddp/tensor.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace ddp::reducer {

struct GradientSpec {
    std::size_t elements;
    DType dtype;
    Device device;
};

struct BucketCaps {
    std::size_t first_bytes;  // of the first bucket of each dtype and device
    std::size_t other_bytes;
};

// Where one gradient lies in its bucket.
struct BucketSlice {
    std::size_t parameter;  // index in registration order
    std::size_t offset;     // in elements; slices begin on 64-byte boundaries, on GPUs 256
    std::size_t elements;
};

struct BucketSpec {
    DType dtype;
    Device device;
    std::vector<BucketSlice> slices;
    std::size_t elements = 0;  // with padding
};

// `order`: of the parameters, as their gradients become ready. The result is in the order in which
// the buckets are sent. A bucket closes when it has reached its cap, so it
// may overshoot by one gradient (as PyTorch's). On GPUs it ends where `ranks` equal parts of whole
// 16 bytes do, and 128 elements: then NCCL cuts it evenly.
std::vector<BucketSpec> plan_buckets(std::span<const GradientSpec> gradients,
                                     std::span<const std::size_t> order, BucketCaps caps,
                                     std::size_t ranks = 1);
// The bytes that the buckets of these gradients take at most, in whatever order: of one after the
// other, where each begins on a boundary of `alignment`.
std::size_t most_bytes_of_plans(std::span<const GradientSpec> gradients, BucketCaps caps,
                                std::size_t ranks, std::size_t alignment);
// The order before any backward: the last parameter first.
std::vector<std::size_t> reverse_order(std::size_t parameters);

}  // namespace ddp::reducer
