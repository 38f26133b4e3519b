#include "support/host_kernels.hpp"

#include "backends/reduction/reduce.hpp"

#include <ddp/dtype.hpp>

#include <concepts>
#include <cstring>
#include <type_traits>

namespace ddp::testing::host_kernels {

namespace {
template <class T>
constexpr bool is_half = std::same_as<T, float16> || std::same_as<T, bfloat16>;

template <class To, class From>
To converted(From value) {
    if constexpr (std::same_as<To, From>) {
        return value;
    } else if constexpr (is_half<From>) {
        return converted<To>(static_cast<float>(value));
    } else if constexpr (is_half<To>) {
        return To(static_cast<float>(value));
    } else {
        return static_cast<To>(value);
    }
}

template <class T>
T scaled(T value, double factor) {
    if constexpr (is_half<T>) {
        return T(static_cast<float>(value) * static_cast<float>(factor));
    } else {
        return static_cast<T>(value * static_cast<T>(factor));
    }
}

// Calls function with a null pointer to the element type.
template <class Function>
void with_type(DType dtype, const Function& function) {
    switch (dtype) {
        case DType::float32:
            return function(static_cast<float*>(nullptr));
        case DType::float64:
            return function(static_cast<double*>(nullptr));
        case DType::int32:
            return function(static_cast<std::int32_t*>(nullptr));
        case DType::int64:
            return function(static_cast<std::int64_t*>(nullptr));
        case DType::uint8:
            return function(static_cast<std::uint8_t*>(nullptr));
        case DType::float16:
            return function(static_cast<float16*>(nullptr));
        case DType::bfloat16:
            return function(static_cast<bfloat16*>(nullptr));
        case DType::int8:
            return function(static_cast<std::int8_t*>(nullptr));
        case DType::int16:
            return function(static_cast<std::int16_t*>(nullptr));
        case DType::boolean:
            return function(static_cast<bool*>(nullptr));
    }
}

template <class T>
void scale_into(const void* from, void* to, std::size_t elements, double factor) {
    const auto* const source = static_cast<const T*>(from);
    auto* const target = static_cast<T*>(to);
    for (std::size_t i = 0; i < elements; ++i) target[i] = scaled(source[i], factor);
}

void scale_into(DType dtype, const void* from, void* to, std::size_t elements, double factor) {
    if (factor == 1) {  // of any type, bit by bit
        if (elements > 0) std::memmove(to, from, elements * size_of(dtype));
        return;
    }
    with_type(dtype, [&]<class T>(T*) {
        if constexpr (!std::is_integral_v<T>) scale_into<T>(from, to, elements, factor);
    });
}

std::byte* place_in(const TensorView& packed, const device::PackItem& item) {
    return static_cast<std::byte*>(packed.data) + item.offset * size_of(packed.dtype);
}
}  // namespace

void scale(const TensorView& values, double factor) {
    scale_into(values.dtype, values.data, values.data, values.numel(), factor);
}

void pack(const std::vector<device::PackItem>& items, const TensorView& packed, double factor) {
    for (const device::PackItem& item : items) {
        scale_into(packed.dtype, item.data, place_in(packed, item), item.elements, factor);
    }
}

void add(const std::vector<const void*>& memories, const TensorView& sum) {
    std::vector<const std::byte*> inputs;
    for (const void* const memory : memories) {
        inputs.push_back(static_cast<const std::byte*>(memory));
    }
    std::byte* const output = static_cast<std::byte*>(sum.data);
    backends::reduce(inputs, {&output, 1}, sum.numel(), {.dtype = sum.dtype});
}

void unpack(const TensorView& packed, const std::vector<device::PackItem>& items) {
    for (const device::PackItem& item : items) {
        const std::size_t bytes = item.elements * size_of(packed.dtype);
        if (bytes > 0) std::memcpy(item.data, place_in(packed, item), bytes);
    }
}

void pack_widened(const std::vector<device::PackItem>& items, DType dtype, const TensorView& packed,
                  double factor) {
    for (const device::PackItem& item : items) {
        const Shape shape{static_cast<std::int64_t>(item.elements)};
        const TensorView wide(place_in(packed, item), shape, DType::float32, packed.device);
        convert(TensorView(item.data, shape, dtype, packed.device), wide);
        scale(wide, factor);
    }
}

void unpack_rounded(const TensorView& packed, const std::vector<device::PackItem>& items,
                    DType dtype) {
    for (const device::PackItem& item : items) {
        const Shape shape{static_cast<std::int64_t>(item.elements)};
        convert(TensorView(place_in(packed, item), shape, DType::float32, packed.device),
                TensorView(item.data, shape, dtype, packed.device));
    }
}

void convert(const TensorView& from, const TensorView& to) {
    with_type(from.dtype, [&]<class From>(From*) {
        with_type(to.dtype, [&]<class To>(To*) {
            const auto* const source = static_cast<const From*>(from.data);
            auto* const target = static_cast<To*>(to.data);
            for (std::size_t i = 0; i < from.numel(); ++i) target[i] = converted<To>(source[i]);
        });
    });
}

}  // namespace ddp::testing::host_kernels
