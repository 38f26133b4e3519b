// CUDA's runtime behind the table. It is linked statically and opens the driver with the first
// call, so that the same program runs on hosts without one.
#include "tensor/device/device_api.hpp"
#include "tensor/device/device_kernels.hpp"
#include "tensor/device/device_probe.hpp"

#include <ddp/error.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <vector>

namespace ddp::device {
namespace {

std::string words_of(cudaError_t error) {
    return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
}

// Takes the error out of the runtime, which would give it to the next caller too.
[[noreturn]] void fail(cudaError_t error, const std::string& call) {
    static_cast<void>(cudaGetLastError());
    int device = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess;
    static_cast<void>(cudaGetLastError());
    const std::string where = known ? " on " + to_string(Device{DeviceType::cuda, device}) : "";
    if (error == cudaErrorMemoryAllocation) throw SystemError("cuda: " + call + where, ENOMEM);
    throw BackendError("cuda", static_cast<int>(error), call + where + ": " + words_of(error));
}

void check(cudaError_t error, const char* call) {
    if (error != cudaSuccess) fail(error, call);
}

std::string of_bytes(const char* call, std::size_t bytes) {
    return std::string(call) + " of " + std::to_string(bytes) + " bytes";
}

// What the runtime says of a question that "not yet" answers as well.
bool is_ready(cudaError_t answer, const char* call) {
    if (answer == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());
        return false;
    }
    check(answer, call);
    return true;
}

int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

// By one of the driver's own functions, which the runtime finds; it creates no context.
bool has_context_on(int device) {
    using Function = int (*)(int device, unsigned* flags, int* active);
    static const Function get_state = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result{};
        constexpr const char* name = "cuDevicePrimaryCtxGetState";
#if CUDART_VERSION >= 12050
        constexpr unsigned since = 7000;
        static_cast<void>(
            cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &result));
#else
        static_cast<void>(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
        static_cast<void>(cudaGetLastError());
        return reinterpret_cast<Function>(found);
    }();
    unsigned flags = 0;
    int active = 0;
    return get_state == nullptr || get_state(device, &flags, &active) != 0 || active != 0;
}

// Another device is current until the end of the scope, or stays so: see CurrentGpu.
class OnDevice {
public:
    explicit OnDevice(int device) : before_(current_device()), other_(device != before_) {
        if (other_) check(cudaSetDevice(device), "cudaSetDevice");
    }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    ~OnDevice() {
        if (other_ && has_context_on(before_)) static_cast<void>(cudaSetDevice(before_));
    }

private:
    int before_;
    bool other_;
};

Device device_of_pointer(const void* pointer) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
    switch (attributes.type) {
        case cudaMemoryTypeDevice:
        case cudaMemoryTypeManaged:
            return {DeviceType::cuda, attributes.device};
        case cudaMemoryTypeHost:
        case cudaMemoryTypeUnregistered:
            break;
    }
    return {};
}

// The device to be current for work on this memory.
int device_for(const void* memory) {
    const Device device = device_of_pointer(memory);
    return device.type == DeviceType::cuda ? device.index : current_device();
}

// "GPU-5c1ae9f0-...", as nvidia-smi and CUDA_VISIBLE_DEVICES spell it.
std::string identity_of(const cudaDeviceProp& properties) {
    const bool is_slice = std::string_view(properties.name).find(" MIG ") != std::string_view::npos;
    std::string text = is_slice ? "MIG" : "GPU";
    for (std::size_t byte = 0; byte < sizeof(properties.uuid.bytes); ++byte) {
        if (byte == 0 || byte == 4 || byte == 6 || byte == 8 || byte == 10) text += '-';
        std::array<char, 3> digits{};
        std::snprintf(digits.data(), digits.size(), "%02x",
                      static_cast<unsigned char>(properties.uuid.bytes[byte]));
        text += digits.data();
    }
    return text;
}

// Machine code runs on the minor versions that follow; PTX is translated for all that do.
bool there_is_code_for(int architecture) {
    static const std::vector<int> code DDP_CODE_FOR;
    static const std::vector<int> ptx DDP_PTX_FOR;
    if (code.empty() && ptx.empty()) return true;  // the build does not know: loading them tells
    return std::ranges::any_of(
               code,
               [&](int one) { return one / 10 == architecture / 10 && one <= architecture; }) ||
           std::ranges::any_of(ptx, [&](int one) { return one <= architecture; });
}

// 90 -> "9.0"
std::string capability_text(int architecture) {
    return std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

LaunchConfig launch_config_for(Stream stream) {
    int multiprocessors = 0;
    check(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, current_device()),
        "cudaDeviceGetAttribute");
    return {stream.handle(), static_cast<unsigned>(multiprocessors)};
}

void require_device_memory(const TensorView& tensor, const char* call) {
    if (tensor.device.type == DeviceType::cuda) return;
    throw UsageError(std::string(call) + ": the tensor is on " + to_string(tensor.device) +
                     ", where no kernel of CUDA runs");
}

void require_factor(DType dtype, double factor, const char* call) {
    if (is_floating_point(dtype) || factor == 1) return;
    throw UsageError(std::string(call) + ": " + to_string(dtype) +
                     " is not multiplied by a factor; floating-point dtypes are");
}

void require_inside(std::span<const PackItem> items, const TensorView& packed, const char* call) {
    const std::size_t elements = packed.numel();
    for (const PackItem& item : items) {
        if (item.offset <= elements && item.elements <= elements - item.offset) continue;
        throw UsageError(std::string(call) + ": " + std::to_string(item.elements) +
                         " elements at " + std::to_string(item.offset) +
                         " do not fit into a packed tensor of " + std::to_string(elements));
    }
}

void require_widened(DType dtype, std::span<const PackItem> items, const TensorView& packed,
                     const char* call) {
    require_device_memory(packed, call);
    require_inside(items, packed, call);
    const bool is_half = dtype == DType::float16 || dtype == DType::bfloat16;
    if (is_half && packed.dtype == DType::float32) return;
    throw UsageError(std::string(call) + ": items of " + to_string(dtype) + " in a packed " +
                     to_string(packed.dtype) + "; it takes float16 or bfloat16 in float32");
}

class CudaDeviceApi final : public DeviceApi {
public:
    Probe probe() const noexcept override {
        RuntimeAnswer answer;
        static_cast<void>(cudaDriverGetVersion(&answer.driver));
        static_cast<void>(cudaRuntimeGetVersion(&answer.runtime));
        const cudaError_t error = cudaGetDeviceCount(&answer.devices);
        static_cast<void>(cudaGetLastError());
        answer.error = static_cast<int>(error);
        if (error != cudaSuccess) answer.words = words_of(error);
        return probe_of(answer);
    }
    std::string describe(int device) override {
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
        return std::string(properties.name) + " (" + identity_of(properties) + ")";
    }
    int architecture(int device) override {
        int major = 0;
        int minor = 0;
        check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
              "cudaDeviceGetAttribute");
        check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
              "cudaDeviceGetAttribute");
        return 10 * major + minor;
    }
    std::string why_unfit(int device) override {
        const int own = architecture(device);
        if (there_is_code_for(own)) return {};
        return describe(device) + " has compute capability " + capability_text(own) +
               ", for which this ddp has no code; build it with CMAKE_CUDA_ARCHITECTURES=" +
               std::to_string(own) + ", where nvcc still has that";
    }
    bool has_context(int device) override { return has_context_on(device); }
    int current() override { return current_device(); }
    void use(int device) override { check(cudaSetDevice(device), "cudaSetDevice"); }
    Device device_of(const void* pointer) override { return device_of_pointer(pointer); }

    void allow_peer_access(int device, int peer) override {
        int can = 0;
        check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer");
        if (can == 0) return;
        const OnDevice guard(device);
        const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled) return forget(error);
        check(error, "cudaDeviceEnablePeerAccess");
    }

    void* allocate(std::size_t bytes) override {
        void* memory = nullptr;
        const cudaError_t error = cudaMalloc(&memory, bytes);
        if (error != cudaSuccess) fail(error, of_bytes("cudaMalloc", bytes));
        return memory;
    }
    void free(void* memory) noexcept override { forget(cudaFree(memory)); }
    void* allocate_pinned(std::size_t bytes) override {
        void* memory = nullptr;
        const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
        if (error != cudaSuccess) fail(error, of_bytes("cudaHostAlloc", bytes));
        return memory;
    }
    void free_pinned(void* memory) noexcept override { forget(cudaFreeHost(memory)); }
    void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
        if (bytes == 0) return;
        // The default stream is that of the device which takes part.
        const void* const own = device_of_pointer(to).type == DeviceType::cuda ? to : from;
        const OnDevice guard(stream.handle() == nullptr ? device_for(own) : current_device());
        const cudaError_t error =
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.handle());
        if (error != cudaSuccess) fail(error, of_bytes("cudaMemcpyAsync", bytes));
    }
    void set_zero(void* memory, std::size_t bytes, Stream stream) override {
        if (bytes == 0) return;
        const OnDevice guard(device_for(memory));
        const cudaError_t error = cudaMemsetAsync(memory, 0, bytes, stream.handle());
        if (error != cudaSuccess) fail(error, of_bytes("cudaMemsetAsync", bytes));
    }

    CUstream_st* make_stream(Priority priority) override {
        int least = 0;
        int greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
              "cudaDeviceGetStreamPriorityRange");
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                           priority == Priority::high ? greatest : least),
              "cudaStreamCreateWithPriority");
        return stream;
    }
    void destroy_stream(CUstream_st* stream) noexcept override {
        if (stream != nullptr) forget(cudaStreamDestroy(stream));
    }
    bool is_done(Stream stream) override {
        return is_ready(cudaStreamQuery(stream.handle()), "cudaStreamQuery");
    }
    void synchronize(Stream stream) override {
        check(cudaStreamSynchronize(stream.handle()), "cudaStreamSynchronize");
    }
    bool is_captured(Stream stream) override {
        // The default stream never is, and asking may be an error.
        if (stream.handle() == nullptr || stream.handle() == cudaStreamLegacy) return false;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        check(cudaStreamIsCapturing(stream.handle(), &status), "cudaStreamIsCapturing");
        return status != cudaStreamCaptureStatusNone;
    }
    void synchronize_device() override { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
    CUevent_st* make_event() override {
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        return event;
    }
    CUevent_st* make_timed_event() override {
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
        return event;
    }
    std::chrono::nanoseconds time_between(CUevent_st* first, CUevent_st* second) override {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, first, second), "cudaEventElapsedTime");
        return std::chrono::nanoseconds(std::llround(double{milliseconds} * 1e6));
    }
    void destroy_event(CUevent_st* event) noexcept override {
        if (event != nullptr) forget(cudaEventDestroy(event));
    }
    void record(CUevent_st* event, Stream stream) override {
        check(cudaEventRecord(event, stream.handle()), "cudaEventRecord");
    }
    // The graph that this thread, or another, captures meanwhile knows nothing of it.
    bool is_done(CUevent_st* event) override {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
        const cudaError_t answer = cudaEventQuery(event);
        forget(cudaThreadExchangeStreamCaptureMode(&mode));
        return is_ready(answer, "cudaEventQuery");
    }
    void wait(Stream stream, CUevent_st* event) override {
        check(cudaStreamWaitEvent(stream.handle(), event, 0), "cudaStreamWaitEvent");
    }

    void load_kernels() override {
        check(load_pack_kernels(), "loading the kernels of pack");
        check(load_convert_kernels(), "loading the kernels of convert");
        check(load_add_kernels(), "loading the kernels of add");
    }
    void scale(const TensorView& values, double factor, Stream stream) override {
        const PackItem all{values.data, values.numel(), 0};
        pack_as("scale", {&all, 1}, values, factor, stream);
    }
    void pack(std::span<const PackItem> items, const TensorView& packed, double factor,
              Stream stream) override {
        pack_as("pack", items, packed, factor, stream);
    }
    void unpack(const TensorView& packed, std::span<const PackItem> items, Stream stream) override {
        require_device_memory(packed, "unpack");
        require_inside(items, packed, "unpack");
        const OnDevice guard(packed.device.index);
        check(launch_unpack(packed.data, items, packed.dtype, launch_config_for(stream)),
              "the kernel of unpack");
    }
    void pack_widened(std::span<const PackItem> items, DType dtype, const TensorView& packed,
                      double factor, Stream stream) override {
        require_widened(dtype, items, packed, "pack_widened");
        const OnDevice guard(packed.device.index);
        check(launch_pack_widened(items, dtype, packed.data, factor, launch_config_for(stream)),
              "the kernel of pack_widened");
    }
    void unpack_rounded(const TensorView& packed, std::span<const PackItem> items, DType dtype,
                        Stream stream) override {
        require_widened(dtype, items, packed, "unpack_rounded");
        const OnDevice guard(packed.device.index);
        check(launch_unpack_rounded(packed.data, items, dtype, launch_config_for(stream)),
              "the kernel of unpack_rounded");
    }
    void convert(const TensorView& from, const TensorView& to, Stream stream) override {
        require_device_memory(from, "convert");
        require_device_memory(to, "convert");
        if (from.numel() != to.numel()) {
            throw UsageError("convert: " + std::to_string(from.numel()) + " elements into " +
                             std::to_string(to.numel()));
        }
        const OnDevice guard(to.device.index);
        check(launch_convert(from, to, launch_config_for(stream)), "the kernel of convert");
    }
    void add(std::span<const void* const> memories, const TensorView& sum, Stream stream) override {
        require_device_memory(sum, "add");
        if (memories.empty() || memories.size() > most_added || sum.dtype == DType::boolean) {
            throw UsageError("add: of " + std::to_string(memories.size()) + " memories of " +
                             to_string(sum.dtype));
        }
        const OnDevice guard(sum.device.index);
        check(launch_add(memories, sum.data, sum.numel(), sum.dtype, launch_config_for(stream)),
              "the kernel of add");
    }

private:
    // Where nobody is left to hear of it. The next caller must not either.
    static void forget(cudaError_t error) noexcept {
        if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    }
    static void pack_as(const char* call, std::span<const PackItem> items, const TensorView& packed,
                        double factor, Stream stream) {
        require_device_memory(packed, call);
        require_factor(packed.dtype, factor, call);
        require_inside(items, packed, call);
        const OnDevice guard(packed.device.index);
        check(launch_pack(items, packed.data, packed.dtype, factor, launch_config_for(stream)),
              (std::string("the kernel of ") + call).c_str());
    }
};

}  // namespace

DeviceApi& built_in_device_api() {
    static CudaDeviceApi cuda;
    return cuda;
}

}  // namespace ddp::device
