// Devices, versions, errors and kernels of the stand-in runtime.
#include "standin_cuda/driver.hpp"

#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

using ddp::standin_cuda::Driver;

namespace {

struct Words {
    cudaError_t error;
    const char* name;
    const char* text;
};
constexpr Words all_words[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const Words& words_of(cudaError_t error) {
    for (const Words& one : all_words) {
        if (one.error == error) return one;
    }
    static constexpr Words unknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
    return unknown;
}

cudaError_t answer(const char* function, cudaError_t error) {
    return Driver::answer(function, error);
}

// The program has code for these and what is newer (cmake/cuda.cmake).
constexpr int oldest_architecture = 75;

cudaError_t why_not(const void* function, dim3 grid, dim3 block) {
    const Driver& driver = Driver::get();
    const auto* const kernel = driver.kernel(function);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (driver.architecture < oldest_architecture) return cudaErrorNoKernelImageForDevice;
    const unsigned threads = block.x * block.y * block.z;
    const bool fits =
        threads > 0 && threads <= kernel->most_threads && grid.x > 0 && grid.y > 0 && grid.z > 0;
    return fits ? cudaSuccess : cudaErrorInvalidConfiguration;
}

// cuDevicePrimaryCtxGetState
int primary_context_state(int device, unsigned* flags, int* active) {
    *flags = 0;
    *active = ddp::standin_cuda::contexts().contains(device) ? 1 : 0;
    return 0;
}

}  // namespace

extern "C" {

const char* cudaGetErrorString(cudaError_t error) { return words_of(error).text; }
const char* cudaGetErrorName(cudaError_t error) { return words_of(error).name; }
cudaError_t cudaGetLastError() { return Driver::take_last_error(); }
cudaError_t cudaPeekAtLastError() { return Driver::last_error(); }

cudaError_t cudaDriverGetVersion(int* version) {
    *version = Driver::get().driver_version;
    return answer("cudaDriverGetVersion", cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return answer("cudaRuntimeGetVersion", cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    const Driver& driver = Driver::get();
    *count = driver.has_driver() ? driver.device_count.load() : 0;
    const cudaError_t error = !driver.has_driver() ? cudaErrorInsufficientDriver
                              : *count == 0        ? cudaErrorNoDevice
                                                   : cudaSuccess;
    return answer("cudaGetDeviceCount", error);
}

cudaError_t cudaGetDevice(int* device) {
    const Driver& driver = Driver::get();
    *device = driver.current();
    return answer("cudaGetDevice", driver.has_driver() ? cudaSuccess : cudaErrorInsufficientDriver);
}

cudaError_t cudaSetDevice(int device) {
    return answer("cudaSetDevice", Driver::get().set_current(device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    const Driver& driver = Driver::get();
    if (!driver.has_driver()) return answer("cudaGetDeviceProperties", cudaErrorInsufficientDriver);
    if (!driver.has_device(device))
        return answer("cudaGetDeviceProperties", cudaErrorInvalidDevice);
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "stand-in GPU");
    const auto identity = ddp_find_host_driver()->bus_id(device);
    std::memcpy(properties->uuid.bytes, &identity, sizeof identity);
    properties->major = driver.architecture / 10;
    properties->minor = driver.architecture % 10;
    properties->multiProcessorCount = 4;
    return answer("cudaGetDeviceProperties", cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    const Driver& driver = Driver::get();
    if (!driver.has_device(device)) return answer("cudaDeviceGetAttribute", cudaErrorInvalidDevice);
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount:
            *value = 4;
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = driver.architecture / 10;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = driver.architecture % 10;
            break;
        default:
            return answer("cudaDeviceGetAttribute", cudaErrorInvalidValue);
    }
    return answer("cudaDeviceGetAttribute", cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
    DDP_STANDIN_OPEN("cudaDeviceSynchronize");
    DDP_STANDIN_UNSAFE("cudaDeviceSynchronize");
    Driver& driver = Driver::get();
    driver.finish(driver.current());
    return answer("cudaDeviceSynchronize", driver.open_context());  // work may have broken it
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    constexpr unsigned since = 7000;
    const bool is_known = Driver::get().has_driver() && version >= since &&
                          std::string_view(symbol) == "cuDevicePrimaryCtxGetState";
    *function = is_known ? reinterpret_cast<void*>(&primary_context_state) : nullptr;
    if (result != nullptr) {
        *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return answer("cudaGetDriverEntryPointByVersion", cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    const Driver& driver = Driver::get();
    const bool exist = driver.has_device(device) && driver.has_device(peer);
    *can = exist && device != peer ? 1 : 0;
    return answer("cudaDeviceCanAccessPeer", exist ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    DDP_STANDIN_OPEN("cudaDeviceEnablePeerAccess");
    Driver& driver = Driver::get();
    if (flags != 0) return answer("cudaDeviceEnablePeerAccess", cudaErrorInvalidValue);
    if (!driver.has_device(peer) || peer == driver.current()) {
        return answer("cudaDeviceEnablePeerAccess", cudaErrorInvalidDevice);
    }
    const std::lock_guard guard(driver.mutex);
    const bool is_new = driver.peers.emplace(driver.current(), peer).second;
    return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    DDP_STANDIN_OPEN("cudaFuncGetAttributes");
    Driver& driver = Driver::get();
    const cudaError_t error = why_not(function, 1, 1);
    if (error != cudaSuccess) return answer("cudaFuncGetAttributes", error);
    driver.load(function, driver.current());
    *attributes = {};
    attributes->maxThreadsPerBlock = static_cast<int>(driver.kernel(function)->most_threads);
    return answer("cudaFuncGetAttributes", cudaSuccess);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** parameters,
                             std::size_t, cudaStream_t handle) {
    DDP_STANDIN_OPEN("cudaLaunchKernel");
    Driver& driver = Driver::get();
    const auto stream = driver.find(handle);
    if (stream == nullptr || stream->device != driver.current()) {
        return answer("cudaLaunchKernel", cudaErrorInvalidResourceHandle);
    }
    if (const cudaError_t error = why_not(function, grid, block); error != cudaSuccess) {
        return answer("cudaLaunchKernel", error);
    }
    driver.load(function, driver.current());
    const auto* const kernel = driver.kernel(function);
    auto work = [thread = kernel->bind(parameters), synchronises = kernel->synchronises, grid,
                 block, delay = driver.launch_delay.load()] {
        if (delay.count() > 0) std::this_thread::sleep_for(delay);
        ddp::standin_cuda::run_grid(thread, synchronises, grid, block);
    };
    return answer("cudaLaunchKernel", driver.put(handle, std::move(work)));
}

}  // extern "C"
