// Which reductions NCCL has, on which elements, and how ddp's averages are made of them.
#pragma once

#include "backends/backend.hpp"

#include <nccl.h>

#include <cstddef>
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
// can be used (more than 4 ranks, on GPUs of compute capability 9.0 and newer) the average of much
// is ncclSum, all of which each rank then scales.
enum class Averaging { by_nccl, by_sum_and_scale };
struct AveragingFacts {
    int ranks = 1;
    int architecture = 0;                // compute capability: 90 is 9.0
    const char* nvls_setting = nullptr;  // of NCCL_NVLS_ENABLE, or null
    int nccl_version = 0;
};
Averaging choose_averaging(const AveragingFacts& facts);
// Less is sooner averaged by ncclAvg, without another kernel.
inline constexpr std::size_t least_scaled_bytes = std::size_t{1} << 20;

}  // namespace ddp::nccl
