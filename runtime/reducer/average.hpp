// A bucket's way to its average by the group's own all-reduce, in whatever memory it lies.
#pragma once

#include <ddp/comm_hook.hpp>
#include <ddp/process_group.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>

namespace ddp::reducer {

// In place, after the work on the stream. Throws UsageError for integers on a GPU that are divided
// by anything but the group's size.
BucketWork start_average(const TensorView& tensor, ProcessGroup& group, std::size_t divisor,
                         Stream stream);

}  // namespace ddp::reducer
