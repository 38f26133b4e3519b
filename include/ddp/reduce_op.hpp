// How a reduction combines the ranks' elements.
#pragma once

#include <ddp/export.hpp>

#include <cstdint>

namespace ddp {

enum class ReduceOp : std::uint8_t {
    sum,
    avg,  // sum, then divided by the number of ranks; integers round towards zero
    min,  // a NaN on any rank gives NaN
    max,  // likewise
    product,
};

DDP_API const char* to_string(ReduceOp) noexcept;  // "sum"

}  // namespace ddp
