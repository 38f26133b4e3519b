// Before anything is averaged: do all ranks hold the same parameters? A mismatch found here is one
// error with a name; found later it would be a hang, or numbers that are silently wrong.
#pragma once

#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>

#include <span>

namespace ddp::reducer {

// Collective. Throws the same UsageError on every rank: a rank's own mistake (an empty name, a name
// used twice, a gradient unlike its value), or the first parameter in which a rank differs from
// rank 0. logical_ranks is not 0 any more.
void check_parameters(std::span<const Parameter> parameters, std::span<const NamedTensor> buffers,
                      ProcessGroup& group, const ReducerOptions& options);

}  // namespace ddp::reducer
