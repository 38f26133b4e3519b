// The part of a sum over logical ranks that one rank does by itself: its logical ranks are a
// subtree of the balanced tree, so that the group's sum over ranks completes the tree of the
// logical ranks.
#pragma once

#include "reducer/memory/gradient_memory.hpp"

#include <ddp/process_group.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <string>

namespace ddp::reducer {

// Empty, or why a group of `ranks` cannot do the work of so many logical ranks.
std::string refuse_logical_ranks(std::size_t logical_ranks, std::size_t ranks);

// What is sent to the other ranks for a bucket: the sum of this rank's logical ranks, the last
// of which is in the bucket itself. In float32 for half types.
TensorView sum_logical_ranks(const BucketMemory& bucket);
// With no other ranks: the average of the logical ranks, in the bucket.
void average_logical_ranks(const BucketMemory& bucket);
// With a hook: the sum of the logical ranks, in the bucket.
void sum_logical_ranks_in_place(const BucketMemory& bucket);

// to = from / divisor, as ReduceOp::avg divides. Same dtype and perhaps the same memory; or from
// float32 to a half type.
void divide(const TensorView& from, const TensorView& to, std::size_t divisor);

}  // namespace ddp::reducer
