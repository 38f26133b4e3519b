// How a reduction combines the ranks' elements. Source: torch.distributed.ReduceOp, MPI_Op.
#pragma once

#include <ddp/dtype.hpp>
#include <ddp/export.hpp>

#include <cstdint>

namespace ddp {

struct ReduceOp {
    enum Kind : std::uint8_t {
        sum,         // integers wrap around; of booleans: or
        avg,         // sum, then divided by the number of ranks; integers round towards zero
        min,         // a NaN on any rank gives NaN
        max,         // likewise
        product,     // of booleans: and
        bit_and,     // integers and booleans
        bit_or,      // likewise
        bit_xor,     // likewise
        premul_sum,  // sum of each rank's elements times its own `factor`; floating point
    };
    Kind kind = sum;    // how elements are combined
    double factor = 1;  // of premul_sum; rounded to the element's type (float32 for half types)

    constexpr ReduceOp() = default;
    constexpr ReduceOp(Kind kind_) : kind(kind_) {}  // NOLINT: ReduceOp::sum is an op
    // Each rank's elements times its `factor`, added up.
    static constexpr ReduceOp make_premul_sum(double factor) {
        ReduceOp op(premul_sum);
        op.factor = factor;
        return op;
    }
    friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};

DDP_API const char* to_string(ReduceOp) noexcept;  // "sum"

// Whether the operation is defined on such elements.
DDP_API bool is_defined(ReduceOp, DType) noexcept;

}  // namespace ddp
