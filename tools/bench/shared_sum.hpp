// all_reduce of memory that all ranks map, without a library (bench/bare.hpp).
#pragma once

#include <ddp/process_group.hpp>

#include <cstddef>

namespace ddp::bench {

// Of float32. Collective.
double measure_shared_sum_us(ProcessGroup& group, std::size_t bytes);

}  // namespace ddp::bench
