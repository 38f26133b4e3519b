// One loop for each pair of types.
#include "checkpoint/convert_elements.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ddp::checkpoint {

namespace {

template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class To, class From>
To convert(From value) {
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else if constexpr (is_half<From>) {
        return convert<To>(static_cast<float>(value));
    } else if constexpr (is_half<To>) {
        return To(static_cast<float>(value));
    } else if constexpr (std::is_same_v<To, bool>) {
        return value != From{};
    } else {
        return static_cast<To>(value);
    }
}

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

template <class T>
constexpr bool is_integer = std::is_integral_v<T>;

}  // namespace

void convert_elements(const TensorView& from, const TensorView& to) {
    if (to.numel() == 0) return;
    if (from.dtype == to.dtype) {
        std::memmove(to.data, from.data, to.bytes());
        return;
    }
    with_type(from.dtype, [&](auto source) {
        with_type(to.dtype, [&](auto target) {
            using From = decltype(source);
            using To = decltype(target);
            if constexpr (is_integer<From> || !is_integer<To>) {
                std::ranges::transform(from.as<From>(), to.as<To>().begin(), convert<To, From>);
            } else {
                throw UsageError("state dict: floating point cannot become integers");
            }
        });
    });
}

}  // namespace ddp::checkpoint
