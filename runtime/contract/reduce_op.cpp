#include <ddp/reduce_op.hpp>

namespace ddp {

const char* to_string(ReduceOp op) noexcept {
    switch (op.kind) {
        case ReduceOp::sum:
            return "sum";
        case ReduceOp::avg:
            return "avg";
        case ReduceOp::min:
            return "min";
        case ReduceOp::max:
            return "max";
        case ReduceOp::product:
            return "product";
        case ReduceOp::bit_and:
            return "bit_and";
        case ReduceOp::bit_or:
            return "bit_or";
        case ReduceOp::bit_xor:
            return "bit_xor";
        case ReduceOp::premul_sum:
            return "premul_sum";
    }
    return "unknown";
}

bool is_defined(ReduceOp op, DType dtype) noexcept {
    switch (op.kind) {
        case ReduceOp::sum:
        case ReduceOp::min:
        case ReduceOp::max:
        case ReduceOp::product:
            return true;
        case ReduceOp::avg:
            return dtype != DType::boolean;
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            return !is_floating_point(dtype);
        case ReduceOp::premul_sum:
            return is_floating_point(dtype);
    }
    return false;
}

}  // namespace ddp
