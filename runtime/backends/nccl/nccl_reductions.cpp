#include "backends/nccl/nccl_reductions.hpp"

#include <ddp/error.hpp>

#include <string>
#include <string_view>

namespace ddp::nccl {

using backends::Call;
using backends::Collective;

bool reduces(const Call& call) {
    return call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
           call.kind == Collective::reduce_scatter;
}

std::optional<ncclDataType_t> type_of(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return ncclFloat32;
        case DType::float64:
            return ncclFloat64;
        case DType::int32:
            return ncclInt32;
        case DType::int64:
            return ncclInt64;
        case DType::uint8:
            return ncclUint8;
        case DType::float16:
            return ncclFloat16;
        case DType::bfloat16:
            return ncclBfloat16;
        case DType::int8:
            return ncclInt8;
        case DType::int16:
            return std::nullopt;
        case DType::boolean:
            return ncclUint8;
    }
    return std::nullopt;
}

// Booleans are bytes of 0 and 1: of these the largest is their or, the smallest their and.
std::optional<ncclRedOp_t> simple_op(ReduceOp op, DType dtype) {
    const bool boolean = dtype == DType::boolean;
    switch (op.kind) {
        case ReduceOp::sum:
            return boolean ? ncclMax : ncclSum;
        case ReduceOp::avg:
            return ncclAvg;
        case ReduceOp::min:
            return ncclMin;
        case ReduceOp::max:
            return ncclMax;
        case ReduceOp::product:
            return boolean ? ncclMin : ncclProd;
        case ReduceOp::bit_and:
            return boolean ? std::optional(ncclMin) : std::nullopt;
        case ReduceOp::bit_or:
            return boolean ? std::optional(ncclMax) : std::nullopt;
        case ReduceOp::bit_xor:
            return std::nullopt;
        case ReduceOp::premul_sum:
            return ncclSum;
    }
    return std::nullopt;
}

void require_supported(const Call& call, int rank) {
    if (call.kind == Collective::all_to_all && call.parts) {
        const auto own = static_cast<std::size_t>(rank);
        const std::size_t sent = call.parts->send[own], expected = call.parts->receive[own];
        if (sent == expected) return;
        throw UsageError("all_to_all: rank " + std::to_string(rank) + " sends " +
                         std::to_string(sent) + " elements to itself, but expects " +
                         std::to_string(expected));
    }
    if (!reduces(call)) return;
    if (type_of(call.dtype) && simple_op(call.op, call.dtype)) return;
    throw UsageError(std::string(backends::to_string(call.kind)) + ": backend nccl has no " +
                     ddp::to_string(call.op) + " of " + ddp::to_string(call.dtype) +
                     "; convert the tensor, or reduce it in CPU memory");
}

Averaging choose_averaging(const AveragingFacts& facts) {
    constexpr int most_without_gain = 4;
    constexpr int first_with_nvls = 21700;
    constexpr int hopper = 90;
    const char* const setting = facts.nvls_setting;
    const bool off = setting != nullptr && std::string_view(setting) == "0";
    return facts.ranks <= most_without_gain || off || facts.nccl_version < first_with_nvls ||
                   facts.architecture < hopper
               ? Averaging::by_nccl
               : Averaging::by_sum_and_scale;
}

}  // namespace ddp::nccl
