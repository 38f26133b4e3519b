// What a collective costs on this host without a library: bare loops that move the same data, and
// do nothing else. Where the private loops of bench/floor.hpp cannot be reached, because data has
// to cross between cores or processes, these can; they are timed as rows are.
//
//  - broadcast and scatter of up to 4 KiB: the root writes the lines that others want into memory
//    that all map, then a flag; each other rank polls the flag and reads its lines.
//  - all_reduce of float32 in ordinary memory from 256 KiB: no rank may touch another's memory, so
//    all data is copied twice on its way. The faster of two loops: through memory that all map, in
//    chunks that stay in the caches, with a flag a rank and chunk; or through the kernel
//    (process_vm_readv and process_vm_writev, where the host allows them).
//  - all_reduce of float32 in shared memory from 16 MiB: each rank adds up its share of what all
//    have mapped and writes the sum to all, with a flag a rank before and after.
#pragma once

#include "bench/bench_options.hpp"

#include <ddp/process_group.hpp>

#include <cstddef>
#include <optional>

namespace ddp::bench {

// Nothing for rows that have no loop. Collective.
std::optional<double> measure_bare_us(ProcessGroup& group, const Options& options,
                                      std::size_t bytes);

}  // namespace ddp::bench
