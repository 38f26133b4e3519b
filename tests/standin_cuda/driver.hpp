// Driver: what all functions of the stand-in runtime (stand_in.hpp) share: devices with their
// contexts and errors, memory, streams, events, kernels. One in a process; it is never destroyed,
// as threads may call when static objects have gone.
#pragma once

#include "standin_cuda/capture.hpp"
#include "standin_cuda/kernels.hpp"
#include "standin_cuda/stand_in.hpp"
#include "support/host_memory.hpp"
#include "support/host_stream.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

struct CUevent_st {
    int device;
    std::shared_ptr<ddp::testing::HostPoint> point;              // null: never recorded
    std::shared_ptr<ddp::standin_cuda::CapturedPoint> captured;  // recorded last in a capture
    bool is_timed = false;
};

namespace ddp::standin_cuda {

struct Stream {
    std::shared_ptr<testing::HostStream> queue;
    bool is_blocking = true;  // ordered with the default stream
};

enum class Takes { time, no_time };

class Driver {
public:
    static Driver& get();

    // A call of the runtime: counts it, and what becomes the thread's last error, which it returns.
    static cudaError_t answer(const char* function, cudaError_t error);
    // The thread's last error, which is taken out.
    static cudaError_t take_last_error();
    static cudaError_t last_error();

    int current() const;  // of the calling thread
    cudaError_t set_current(int device);
    // Opens the current device's context. What a call answers whose device cannot be used.
    cudaError_t open_context();
    cudaError_t open_context(int device);
    bool has_driver() const { return driver_version != 0 && driver_version >= needed_version; }
    bool has_device(int device) const { return device >= 0 && device < device_count; }

    // Null: no such stream. For a null handle the current device's default one.
    std::shared_ptr<testing::HostStream> find(cudaStream_t handle);
    bool is_default(cudaStream_t handle) const;
    cudaError_t make_stream(cudaStream_t* stream, bool is_blocking);
    cudaError_t destroy_stream(cudaStream_t stream);
    void drop_destroyed();  // that have nothing left to do
    // On the stream, after what it is ordered with. What takes no time is done at once where nothing
    // is before it, and wakes no thread: as on a card an event costs its caller next to nothing.
    cudaError_t put(cudaStream_t stream, std::function<void()> work, Takes takes = Takes::time);
    void finish(int device);  // waits for all its work
    bool is_idle(int device);

    // Whose the bytes are, all of them; none: ordinary memory, or past the end of an allocation.
    std::optional<int> owner_of(const void* memory, std::size_t bytes) const;
    const Kernel* kernel(const void* address) const;
    // First use of a kernel on a device: waits for it, see stand_in.hpp.
    void load(const void* address, int device);

    static constexpr int needed_version = CUDART_VERSION;
    std::atomic<int> device_count = 1;
    std::atomic<bool> is_shared = false;
    std::atomic<int> driver_version = CUDART_VERSION;
    std::atomic<int> architecture = 90;
    std::atomic<std::chrono::microseconds> launch_delay{std::chrono::microseconds{0}};
    std::atomic<std::size_t> staged_copies = 0;
    std::atomic<std::size_t> late_loads = 0;
    std::mutex lock;  // the driver's
    testing::HostMemory memory;

    mutable std::mutex mutex;  // of all below
    std::set<int> contexts;
    std::map<int, cudaError_t> broken;
    std::map<cudaStream_t, Stream> streams;
    std::vector<std::shared_ptr<testing::HostStream>> default_streams;  // by device; null: not yet
    std::vector<std::shared_ptr<testing::HostStream>> destroyed;  // their last work still runs
    std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events;
    std::map<const void*, Kernel> kernels;
    std::set<std::pair<const void*, int>> loaded;
    std::set<std::pair<int, int>> peers;  // the first may use the second's memory
    std::map<std::string, std::size_t> calls;

private:
    Driver() = default;
    std::shared_ptr<testing::HostStream> default_stream(int device);  // under the mutex
    std::vector<std::shared_ptr<testing::HostStream>> streams_of(int device, bool blocking_alone);
};

// For a call that a capture forbids, see Captures::unsafe.
#define DDP_STANDIN_UNSAFE(function)                                                             \
    if (const cudaError_t why = ddp::standin_cuda::Captures::get().unsafe(); why != cudaSuccess) \
    return Driver::answer(function, why)

// For a call that needs the current device's context.
#define DDP_STANDIN_OPEN(function)                                                \
    if (const cudaError_t why = Driver::get().open_context(); why != cudaSuccess) \
    return Driver::answer(function, why)

}  // namespace ddp::standin_cuda
