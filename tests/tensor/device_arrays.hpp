// Arrays on a device for tests of its kernels, and all dtypes in turn.
#pragma once

#include "tensor/device/device_api.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace ddp::testing {

template <class... Types, class Visit>
void for_types(Visit visit) {
    (visit(std::type_identity<Types>{}), ...);
}
// Calls `visit` with a std::type_identity of each type that has a DType.
template <class Visit>
void for_each_type(Visit visit) {
    for_types<float, double, std::int32_t, std::int64_t, std::uint8_t, float16, bfloat16,
              std::int8_t, std::int16_t, bool>(visit);
}
template <class Visit>
void for_each_floating_type(Visit visit) {
    for_types<float, double, float16, bfloat16>(visit);
}

// Of any type: a std::vector<bool> has no elements to point to.
template <class T>
struct HostArray {
    explicit HostArray(std::size_t size_) : size(size_), values(std::make_unique<T[]>(size_)) {}
    T& operator[](std::size_t at) { return values[at]; }
    const T& operator[](std::size_t at) const { return values[at]; }

    std::size_t size;
    std::unique_ptr<T[]> values;
};

// Device memory for the elements of a host's array, `shift` elements off an aligned address. Also
// none of them are on the device: CUDA gives no address for no bytes.
template <class T>
class DeviceArray {
public:
    DeviceArray(device::DeviceApi& api, const HostArray<T>& values, std::size_t shift = 0)
        : api_(api),
          size_(values.size),
          memory_(api.allocate(std::max<std::size_t>((shift + size_) * sizeof(T), 1))),
          data_(static_cast<T*>(memory_) + shift) {
        api_.copy(data_, values.values.get(), size_ * sizeof(T), {});
        api_.synchronize({});
    }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() { api_.free(memory_); }

    T* data() const { return data_; }
    TensorView view(std::size_t first, std::size_t count) const {
        return {data_ + first,
                {static_cast<std::int64_t>(count)},
                dtype_of<T>(),
                api_.device_of(memory_)};
    }
    TensorView view() const { return view(0, size_); }
    HostArray<T> read() const {
        HostArray<T> values(size_);
        api_.copy(values.values.get(), data_, size_ * sizeof(T), {});
        api_.synchronize({});
        return values;
    }

private:
    device::DeviceApi& api_;
    std::size_t size_;
    void* memory_;
    T* data_;
};

}  // namespace ddp::testing
