// Which reductions NCCL has, on which elements, and how ddp's averages are made of them.
#pragma once

#include "backends/backend.hpp"

#include <nccl.h>

#include <optional>

namespace ddp::nccl {

// Whether a call combines elements; the others only move bytes.
bool reduces(const backends::Call& call);
// Nothing where NCCL has no such type, or operation. A premul_sum is made anew for each call.
std::optional<ncclDataType_t> type_of(DType dtype);
std::optional<ncclRedOp_t> simple_op(ReduceOp op, DType dtype);

// Throws UsageError: for a reduction that NCCL does not have on such elements (it names both), and
// for an all_to_all in which this rank sends itself another number of elements than it gets.
void require_supported(const backends::Call& call, int rank);

// A floating-point ncclAvg multiplies before it sums, which switches NVLink SHARP off. Where that
// could be used (more than 4 ranks) an average is ncclSum, and each rank scales its own shard.
enum class Averaging { by_nccl, by_sum_and_scale };
// `nvls_setting`: of NCCL_NVLS_ENABLE, or null. `version`: NCCL's.
Averaging choose_averaging(int ranks, const char* nvls_setting, int version);

}  // namespace ddp::nccl
