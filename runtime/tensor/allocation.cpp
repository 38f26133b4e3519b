#include "tensor/allocation.hpp"

#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_api.hpp"
#include "tensor/memory_count.hpp"

#include <ddp/error.hpp>

#include <cerrno>
#include <cstring>
#include <limits>
#include <new>

namespace ddp::device {
namespace {

constexpr std::align_val_t alignment{64};

std::size_t bytes_of(const Shape& shape, DType dtype) {
    std::size_t bytes = size_of(dtype);
    bool fits = true;
    bool none = false;
    for (const std::int64_t extent : shape.extents()) {
        none = none || extent == 0;
        fits = !__builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes) && fits;
    }
    if (none) return 0;
    if (!fits || bytes > std::numeric_limits<std::ptrdiff_t>::max()) {
        throw UsageError("tensor of shape " + to_string(shape) + " and dtype " + to_string(dtype) +
                         ": more bytes than there are addresses; are the extents right?");
    }
    return bytes;
}

std::string naming(std::size_t bytes, const std::string& where) {
    return "tensor: allocate " + std::to_string(bytes) + " bytes " + where;
}

std::shared_ptr<void> ordinary_memory(std::size_t bytes, const Device& device) {
    void* const memory = ::operator new(bytes, alignment, std::nothrow);
    if (memory == nullptr) throw SystemError(naming(bytes, "on " + to_string(device)), ENOMEM);
    return {memory, [](void* done) { ::operator delete(done, alignment); }};
}

std::shared_ptr<void> pinned_memory(std::size_t bytes, const Device& device) {
    if (device.type != DeviceType::cpu) {
        throw UsageError("tensor: pinned memory is the host's, and " + to_string(device) +
                         " was asked for; leave out .pinned, or the device");
    }
    DeviceApi& api = device_api();
    if (const Probe seen = api.probe(); seen.devices == 0) {
        throw UsageError(
            "tensor: pinned memory is for copies to and from a GPU, and there is none (" +
            seen.reason + "); leave out .pinned");
    }
    try {
        return {api.allocate_pinned(bytes), [&api, index = api.current()](void* done) {
                    give_back_on(api, index, [&] { api.free_pinned(done); });
                }};
    } catch (const SystemError& error) {
        throw SystemError(naming(bytes, "of pinned memory"), error.code());
    }
}

std::shared_ptr<void> gpu_memory(std::size_t bytes, const Device& device) {
    DeviceApi& api = device_api();
    const CurrentGpu current(api, device.index);
    try {
        return {api.allocate(bytes), [&api, index = device.index](void* done) {
                    give_back_on(api, index, [&] { api.free(done); });
                }};
    } catch (const SystemError& error) {
        throw SystemError(naming(bytes, "on " + to_string(device)), error.code());
    }
}

}  // namespace

Tensor allocate(const Shape& shape, DType dtype, const Device& device, HostMemory host) {
    require_known(device);
    const std::size_t bytes = bytes_of(shape, dtype);
    std::shared_ptr<void> memory;
    if (bytes > 0 && host == HostMemory::pinned) {
        memory = pinned_memory(bytes, device);
    } else if (bytes > 0) {
        memory = device.type == DeviceType::cuda ? gpu_memory(bytes, device)
                                                 : ordinary_memory(bytes, device);
    }
    if (bytes > 0) memory = counted(std::move(memory), bytes, device);
    return {TensorView(memory.get(), shape, dtype, device), memory};
}

void set_zero(const TensorView& tensor) {
    if (tensor.bytes() == 0) return;
    if (tensor.device.type == DeviceType::cpu) {
        std::memset(tensor.data, 0, tensor.bytes());
        return;
    }
    DeviceApi& api = device_api();
    const CurrentGpu current(api, tensor.device.index);
    api.set_zero(tensor.data, tensor.bytes(), Stream{});
    api.synchronize(Stream{});
}

}  // namespace ddp::device
