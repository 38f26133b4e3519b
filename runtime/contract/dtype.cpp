#include <ddp/dtype.hpp>

namespace ddp {

const char* to_string(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return "float32";
        case DType::float64:
            return "float64";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
        case DType::uint8:
            return "uint8";
        case DType::float16:
            return "float16";
        case DType::bfloat16:
            return "bfloat16";
        case DType::int8:
            return "int8";
        case DType::int16:
            return "int16";
        case DType::boolean:
            return "bool";
    }
    return "unknown";
}

bool is_floating_point(DType dtype) noexcept {
    return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::float16 ||
           dtype == DType::bfloat16;
}

}  // namespace ddp
