// DType: the types of tensors' elements, and the C++ types that go with them.
#pragma once

#include <ddp/export.hpp>
#include <ddp/half.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ddp {

enum class DType : std::uint8_t {
    float32,
    float64,
    int32,
    int64,
    uint8,
    float16,
    bfloat16,
    int8,
    int16,
    boolean,  // one byte, 0 or 1
};

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::float64:
        case DType::int64:
            return 8;
        case DType::float32:
        case DType::int32:
            return 4;
        case DType::float16:
        case DType::bfloat16:
        case DType::int16:
            return 2;
        case DType::uint8:
        case DType::int8:
        case DType::boolean:
            return 1;
    }
    return 0;
}
DDP_API const char* to_string(DType) noexcept;   // "float32"; "bool" for boolean
DDP_API bool is_floating_point(DType) noexcept;  // the half types too

// The DType of a C++ type; no value for types that have none.
template <class T>
inline constexpr auto dtype_of_type = nullptr;
template <>
inline constexpr DType dtype_of_type<float> = DType::float32;
template <>
inline constexpr DType dtype_of_type<double> = DType::float64;
template <>
inline constexpr DType dtype_of_type<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of_type<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of_type<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of_type<float16> = DType::float16;
template <>
inline constexpr DType dtype_of_type<bfloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of_type<std::int8_t> = DType::int8;
template <>
inline constexpr DType dtype_of_type<std::int16_t> = DType::int16;
template <>
inline constexpr DType dtype_of_type<bool> = DType::boolean;

// A type that has a DType.
template <class T>
concept TensorElement = std::same_as<decltype(dtype_of_type<T>), const DType>;

// The DType of T.
template <TensorElement T>
constexpr DType dtype_of() noexcept {
    return dtype_of_type<T>;
}

}  // namespace ddp
