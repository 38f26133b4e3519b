#include "standin_nccl/reduction.hpp"

#include <ddp/half.hpp>

#include <algorithm>
#include <concepts>
#include <cstring>
#include <type_traits>

namespace stand_in {

namespace {
using ddp::bfloat16;
using ddp::float16;

template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T>
Wide<T> combine(Wide<T> a, Wide<T> b, ncclRedOp_t op) {
    // Integers wrap around, as on the device.
    using Unsigned = std::conditional_t<std::is_integral_v<T>, std::uint64_t, Wide<T>>;
    if (op == ncclProd) return static_cast<Wide<T>>(Unsigned(a) * Unsigned(b));
    if (op == ncclMax) return std::max(a, b);
    if (op == ncclMin) return std::min(a, b);
    return static_cast<Wide<T>>(Unsigned(a) + Unsigned(b));
}

template <class T>
T load(const std::byte* place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

// What each input is multiplied by: NCCL has it in the elements' type.
template <class T>
Wide<T> factor_of(const Reduction& reduction, std::size_t ranks) {
    if (reduction.op == ncclAvg) {
        return static_cast<Wide<T>>(T(1 / static_cast<Wide<T>>(ranks)));
    }
    const auto* const place = static_cast<const std::byte*>(reduction.factor_place);
    return static_cast<Wide<T>>(
        load<T>(place != nullptr ? place : reinterpret_cast<const std::byte*>(&reduction.factor)));
}

template <class T>
void reduce_as(const std::vector<const std::byte*>& inputs, std::byte* out, std::size_t elements,
               const Reduction& reduction) {
    const bool divides = std::is_integral_v<T> && reduction.op == ncclAvg;
    const bool scales = reduction.op == ncclNumOps || (reduction.op == ncclAvg && !divides);
    const auto factor = scales ? factor_of<T>(reduction, inputs.size()) : Wide<T>{1};
    const auto input = [&](std::size_t rank, std::size_t i) {
        const auto value = static_cast<Wide<T>>(load<T>(inputs[rank] + i * sizeof(T)));
        return scales ? combine<T>(value, factor, ncclProd) : value;
    };
    for (std::size_t i = 0; i < elements; ++i) {
        auto sum = input(0, i);
        for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
            sum = combine<T>(sum, input(rank, i), reduction.op);
        }
        if (divides) sum = static_cast<Wide<T>>(sum / static_cast<Wide<T>>(inputs.size()));
        const T result(sum);
        std::memcpy(out + i * sizeof(T), &result, sizeof result);
    }
}
}  // namespace

std::size_t size_of(ncclDataType_t dtype) {
    if (dtype == ncclInt8 || dtype == ncclUint8) return 1;
    if (dtype == ncclFloat16 || dtype == ncclBfloat16) return 2;
    if (dtype == ncclInt32 || dtype == ncclUint32 || dtype == ncclFloat32) return 4;
    if (dtype == ncclInt64 || dtype == ncclUint64 || dtype == ncclFloat64) return 8;
    return 0;
}

void reduce(const std::vector<const std::byte*>& inputs, std::byte* out, std::size_t elements,
            ncclDataType_t dtype, const Reduction& reduction) {
    switch (dtype) {
        case ncclInt8:
            return reduce_as<std::int8_t>(inputs, out, elements, reduction);
        case ncclUint8:
            return reduce_as<std::uint8_t>(inputs, out, elements, reduction);
        case ncclInt32:
            return reduce_as<std::int32_t>(inputs, out, elements, reduction);
        case ncclUint32:
            return reduce_as<std::uint32_t>(inputs, out, elements, reduction);
        case ncclInt64:
            return reduce_as<std::int64_t>(inputs, out, elements, reduction);
        case ncclUint64:
            return reduce_as<std::uint64_t>(inputs, out, elements, reduction);
        case ncclFloat16:
            return reduce_as<float16>(inputs, out, elements, reduction);
        case ncclFloat32:
            return reduce_as<float>(inputs, out, elements, reduction);
        case ncclFloat64:
            return reduce_as<double>(inputs, out, elements, reduction);
        case ncclBfloat16:
            return reduce_as<bfloat16>(inputs, out, elements, reduction);
        case ncclFloat8e4m3:
        case ncclFloat8e5m2:
        case ncclNumTypes:
            break;
    }
}

}  // namespace stand_in
