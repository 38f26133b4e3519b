#include "checkpoint/staging.hpp"

#include <algorithm>
#include <cstring>

#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device_api.hpp"

namespace ddp::checkpoint {

namespace {

constexpr std::size_t part_bytes = std::size_t{8} << 20;

// Calls `part` with the address of each part of the tensor's memory, and its length.
template <class Part>
void for_each_part(const TensorView& tensor, const Part& part) {
    auto* const data = static_cast<std::byte*>(tensor.data);
    const std::size_t bytes = tensor.bytes();
    for (std::size_t begin = 0; begin < bytes; begin += part_bytes) {
        part(data + begin, begin, std::min(part_bytes, bytes - begin));
    }
}

}  // namespace

Staging::~Staging() {
    if (memory_ == nullptr) return;
    device::DeviceApi& api = device::device_api();
    device::give_back_on(api, gpu_, [&] { api.free_pinned(memory_); });
}

std::byte* Staging::pinned() {
    device::DeviceApi& api = device::device_api();
    if (memory_ == nullptr) {
        gpu_ = api.current();
        memory_ = api.allocate_pinned(part_bytes);
    }
    return static_cast<std::byte*>(memory_);
}

void Staging::read(const TensorView& tensor,
                   const std::function<void(std::span<const std::byte>)>& take) {
    if (tensor.bytes() == 0) return;
    if (tensor.device.type == DeviceType::cpu) {
        return take({static_cast<const std::byte*>(tensor.data), tensor.bytes()});
    }
    auto& api = device::device_api();
    const device::CurrentGpu current{api, tensor.device.index};
    api.synchronize_device();
    for_each_part(tensor, [&](const std::byte* data, std::size_t /*begin*/, std::size_t bytes) {
        api.copy(pinned(), data, bytes, {});
        api.synchronize({});
        take({pinned(), bytes});
    });
}

void Staging::read(const TensorView& tensor, std::byte* to) {
    read(tensor, [&](std::span<const std::byte> part) {
        std::memcpy(to, part.data(), part.size());
        to += part.size();
    });
}

void Staging::write(const TensorView& tensor, const std::byte* from) {
    if (tensor.bytes() == 0) return;
    if (tensor.device.type == DeviceType::cpu) {
        std::memmove(tensor.data, from, tensor.bytes());
        return;
    }
    auto& api = device::device_api();
    const device::CurrentGpu current{api, tensor.device.index};
    api.synchronize_device();
    for_each_part(tensor, [&](std::byte* data, std::size_t begin, std::size_t bytes) {
        std::memcpy(pinned(), from + begin, bytes);
        api.copy(data, pinned(), bytes, {});
        api.synchronize({});
    });
}

}  // namespace ddp::checkpoint
