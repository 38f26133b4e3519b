// From a DType to the C++ type, once for a whole loop.
#pragma once

#include <ddp/dtype.hpp>

#include <cstdint>

namespace ddp::device {

// Calls `visit` with a value of the C++ type of `dtype`.
template <class Visit>
void with_type(DType dtype, const Visit& visit) {
    switch (dtype) {
        case DType::float32:
            return visit(float{});
        case DType::float64:
            return visit(double{});
        case DType::int32:
            return visit(std::int32_t{});
        case DType::int64:
            return visit(std::int64_t{});
        case DType::uint8:
            return visit(std::uint8_t{});
        case DType::float16:
            return visit(float16{});
        case DType::bfloat16:
            return visit(bfloat16{});
        case DType::int8:
            return visit(std::int8_t{});
        case DType::int16:
            return visit(std::int16_t{});
        case DType::boolean:
            return visit(bool{});
    }
}

}  // namespace ddp::device
