// The device API on the host, for tests without a GPU: devices are host memory that is kept apart,
// streams are threads. Stricter than CUDA where tests profit: what a GPU would answer with an
// illegal access, later and somewhere else, is a BackendError of the call that asked for it, and so
// is a stream or event that does not exist any more. free() waits for all work of the device, as
// cudaFree does. One object at a time; all its streams' work has to end before it goes.
#pragma once

#include "support/host_memory.hpp"
#include "support/host_stream.hpp"
#include "tensor/device/device_api.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace ddp::testing {

class HostDeviceApi final : public device::DeviceApi {
public:
    // With one device, it is this process's own (a rank for each process, each with its GPU); with
    // more, all processes see the same ones.
    explicit HostDeviceApi(int devices = 1);
    ~HostDeviceApi() override;

    // From now on there is no device, for this reason; the calls fail as CUDA's do then.
    void set_reason(std::string reason);
    // Each kernel, copy and set_zero starts this much later on its stream.
    void set_launch_delay(std::chrono::microseconds delay) { launch_delay_ = delay; }
    // Of each device, 1 GiB unless set.
    void set_memory(std::size_t bytes) { memory_.set_limit(bytes); }
    std::size_t allocated() const { return memory_.allocated(); }  // all devices', and pinned

    // For the stand-in NCCL; null: there is none.
    CUstream_st* find(CUstream_st* handle);
    bool owns(int device, const void* memory, std::size_t bytes);
    unsigned long long bus_id(int device) const;

    device::Probe probe() const noexcept override;
    std::string describe(int device) override;
    int architecture(int) override { return 90; }
    std::string why_unfit(int) override { return {}; }
    bool has_context(int) override { return true; }
    int current() override;
    void use(int device) override;
    Device device_of(const void* pointer) override;

    void allow_peer_access(int, int) override {}
    void* allocate(std::size_t bytes) override;
    void free(void* memory) noexcept override;
    void* allocate_pinned(std::size_t bytes) override;
    void free_pinned(void* memory) noexcept override;
    void copy(void* to, const void* from, std::size_t bytes, Stream stream) override;
    void set_zero(void* memory, std::size_t bytes, Stream stream) override;

    CUstream_st* make_stream(device::Priority priority) override;
    void destroy_stream(CUstream_st* stream) noexcept override;
    bool is_done(Stream stream) override;
    void synchronize(Stream stream) override;
    void synchronize_device() override;
    CUevent_st* make_event() override;
    CUevent_st* make_timed_event() override { return make_event(); }
    std::chrono::nanoseconds time_between(CUevent_st* first, CUevent_st* second) override;
    void destroy_event(CUevent_st* event) noexcept override;
    void record(CUevent_st* event, Stream stream) override;
    bool is_done(CUevent_st* event) override;
    void wait(Stream stream, CUevent_st* event) override;
    bool is_captured(Stream) override { return false; }

    void load_kernels() override {}
    void scale(const TensorView& values, double factor, Stream stream) override;
    void pack(std::span<const device::PackItem> items, const TensorView& packed, double factor,
              Stream stream) override;
    void unpack(const TensorView& packed, std::span<const device::PackItem> items,
                Stream stream) override;
    void pack_widened(std::span<const device::PackItem> items, DType dtype,
                      const TensorView& packed, double factor, Stream stream) override;
    void unpack_rounded(const TensorView& packed, std::span<const device::PackItem> items,
                        DType dtype, Stream stream) override;
    void convert(const TensorView& from, const TensorView& to, Stream stream) override;
    void add(std::span<const void* const> memories, const TensorView& sum, Stream stream) override;

private:
    using StreamPtr = std::shared_ptr<HostStream>;
    void finish(int device);  // waits for all work there

    enum class Code {  // cudaError_t's numbers
        invalid_value = 1,
        insufficient_driver = 35,
        invalid_device = 101,
        invalid_handle = 400,
        illegal_address = 700,
    };

    [[noreturn]] static void fail(const char* call, int device, Code code, const std::string& why);
    void require_driver(const char* call) const;
    StreamPtr stream(const char* call, Stream handle);
    void require_memory(const char* call, int device, const void* memory, std::size_t bytes);
    void require_floats(const char* call, int device, const TensorView& view);
    void require_halves(const char* call, int device, std::span<const device::PackItem> items,
                        DType dtype, const TensorView& packed);
    void require_items(const char* call, int device, std::span<const device::PackItem> items,
                       const TensorView& packed);
    void launch(const StreamPtr& stream, std::function<void()> work);

    const int devices_;
    const unsigned long long id_;  // of the object: a thread's current device is one of its
    std::atomic<std::chrono::microseconds> launch_delay_{std::chrono::microseconds{0}};
    HostMemory memory_;
    mutable std::mutex mutex_;
    std::string reason_;
    std::map<CUstream_st*, StreamPtr> streams_;
    std::vector<StreamPtr> default_streams_;
    std::vector<StreamPtr> destroyed_;  // their last work still runs
    std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events_;
};

}  // namespace ddp::testing
