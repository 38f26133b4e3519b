// One loop for each pair of types.
#include "tensor/convert_elements.hpp"

#include "tensor/with_type.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ddp::device {

namespace {

template <class T>
constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

// The language has no answer for what does not fit.
template <class From>
std::int64_t truncated(From value) {
    constexpr From end = 0x1p63F;
    return value >= -end && value < end ? static_cast<std::int64_t>(value)
                                        : std::numeric_limits<std::int64_t>::min();
}

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
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        return static_cast<To>(truncated(value));
    } else {
        return static_cast<To>(value);
    }
}

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
            std::ranges::transform(from.as<From>(), to.as<To>().begin(), convert<To, From>);
        });
    });
}

}  // namespace ddp::device
