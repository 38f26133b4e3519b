// Memory of the stand-in runtime: allocations, copies, and whose a pointer is.
#include "standin_cuda/driver.hpp"

#include <ddp/error.hpp>

#include <cstring>
#include <thread>

using ddp::standin_cuda::Driver;
using ddp::testing::HostMemory;

namespace {

cudaError_t answer(const char* function, cudaError_t error) {
    return Driver::answer(function, error);
}

cudaError_t allocate(void** memory, std::size_t bytes, int device) {
    Driver& driver = Driver::get();
    const std::lock_guard guard(driver.lock);
    try {
        *memory = driver.memory.allocate(bytes, device);
        return cudaSuccess;
    } catch (const ddp::Error&) {
        return cudaErrorMemoryAllocation;
    }
}

// Work that starts late where tests ask for it.
template <class Work>
cudaError_t put(cudaStream_t stream, Work work) {
    Driver& driver = Driver::get();
    return driver.put(stream, [work, delay = driver.launch_delay.load()] {
        if (delay.count() > 0) std::this_thread::sleep_for(delay);
        work();
    });
}

// Whether the kind of copy fits where both sides are.
bool fits(cudaMemcpyKind kind, bool to_device, bool from_device) {
    switch (kind) {
        case cudaMemcpyHostToHost:
            return !to_device && !from_device;
        case cudaMemcpyHostToDevice:
            return to_device && !from_device;
        case cudaMemcpyDeviceToHost:
            return !to_device && from_device;
        case cudaMemcpyDeviceToDevice:
            return to_device && from_device;
        case cudaMemcpyDefault:
            return true;
    }
    return false;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t handle, bool waits) {
    Driver& driver = Driver::get();
    const auto stream = driver.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const auto to_owner = driver.owner_of(to, bytes);
    const auto from_owner = driver.owner_of(from, bytes);
    const bool is_past_end =
        (!to_owner && driver.owner_of(to, 0)) || (!from_owner && driver.owner_of(from, 0));
    const bool to_device = to_owner.value_or(HostMemory::pinned) != HostMemory::pinned;
    const bool from_device = from_owner.value_or(HostMemory::pinned) != HostMemory::pinned;
    if (is_past_end || !fits(kind, to_device, from_device)) return cudaErrorInvalidValue;
    if (to_device && from_device && *to_owner != *from_owner) {
        const std::lock_guard guard(driver.mutex);
        const bool direct = driver.peers.contains({*to_owner, *from_owner}) ||
                            driver.peers.contains({*from_owner, *to_owner});
        if (!direct) ++driver.staged_copies;
    }
    const cudaError_t error = put(handle, [=] { std::memmove(to, from, bytes); });
    if (error == cudaSuccess && (waits || !to_owner || !from_owner)) stream->synchronize();
    return error;
}

cudaError_t set(void* memory, int value, std::size_t bytes, cudaStream_t handle, bool waits) {
    Driver& driver = Driver::get();
    const auto stream = driver.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (driver.owner_of(memory, bytes).value_or(HostMemory::pinned) == HostMemory::pinned) {
        return cudaErrorInvalidValue;
    }
    const cudaError_t error = put(handle, [=] { std::memset(memory, value, bytes); });
    if (error == cudaSuccess && waits) stream->synchronize();
    return error;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    DDP_STANDIN_OPEN("cudaMalloc");
    DDP_STANDIN_UNSAFE("cudaMalloc");
    return answer("cudaMalloc", allocate(memory, bytes, Driver::get().current()));
}

// Waits for all that runs on the device, with the driver's lock.
cudaError_t cudaFree(void* memory) {
    DDP_STANDIN_OPEN("cudaFree");
    DDP_STANDIN_UNSAFE("cudaFree");
    Driver& driver = Driver::get();
    if (memory == nullptr) return answer("cudaFree", cudaSuccess);
    const auto owner = driver.owner_of(memory, 0);
    if (owner.value_or(HostMemory::pinned) == HostMemory::pinned) {
        return answer("cudaFree", cudaErrorInvalidValue);
    }
    const std::lock_guard guard(driver.lock);
    driver.finish(*owner);
    driver.memory.free(memory);
    return answer("cudaFree", cudaSuccess);
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    DDP_STANDIN_OPEN("cudaHostAlloc");
    DDP_STANDIN_UNSAFE("cudaHostAlloc");
    return answer("cudaHostAlloc", allocate(memory, bytes, HostMemory::pinned));
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    DDP_STANDIN_OPEN("cudaMallocHost");
    DDP_STANDIN_UNSAFE("cudaMallocHost");
    return answer("cudaMallocHost", allocate(memory, bytes, HostMemory::pinned));
}

cudaError_t cudaFreeHost(void* memory) {
    DDP_STANDIN_OPEN("cudaFreeHost");
    DDP_STANDIN_UNSAFE("cudaFreeHost");
    Driver& driver = Driver::get();
    if (memory == nullptr) return answer("cudaFreeHost", cudaSuccess);
    if (driver.owner_of(memory, 0) != HostMemory::pinned) {
        return answer("cudaFreeHost", cudaErrorInvalidValue);
    }
    const std::lock_guard guard(driver.lock);
    driver.finish(driver.current());
    driver.memory.free(memory);
    return answer("cudaFreeHost", cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    DDP_STANDIN_OPEN("cudaPointerGetAttributes");
    *attributes = {};
    const auto owner = Driver::get().owner_of(pointer, 0);
    attributes->device =
        owner && *owner != HostMemory::pinned ? *owner : -2;  // cudaInvalidDeviceId
    attributes->type = !owner                         ? cudaMemoryTypeUnregistered
                       : *owner == HostMemory::pinned ? cudaMemoryTypeHost
                                                      : cudaMemoryTypeDevice;
    return answer("cudaPointerGetAttributes", cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    DDP_STANDIN_OPEN("cudaMemcpyAsync");
    return answer("cudaMemcpyAsync", copy(to, from, bytes, kind, stream, false));
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    DDP_STANDIN_OPEN("cudaMemcpy");
    DDP_STANDIN_UNSAFE("cudaMemcpy");
    return answer("cudaMemcpy", copy(to, from, bytes, kind, nullptr, true));
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    DDP_STANDIN_OPEN("cudaMemsetAsync");
    return answer("cudaMemsetAsync", set(memory, value, bytes, stream, false));
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
    DDP_STANDIN_OPEN("cudaMemset");
    DDP_STANDIN_UNSAFE("cudaMemset");
    return answer("cudaMemset", set(memory, value, bytes, nullptr, true));
}

}  // extern "C"
