#include "standin_cuda/driver.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace ddp::standin_cuda {
namespace {

using testing::HostPoint;
using testing::HostStream;

thread_local int current_device = 0;
thread_local cudaError_t last = cudaSuccess;

// For the stand-in NCCL, see host_stream.h.
int is_captured(CUstream_st* stream) {
    const auto status = Captures::get().status(*static_cast<HostStream*>(stream));
    return status == cudaStreamCaptureStatusActive ? 1 : 0;
}

void capture(CUstream_st* stream, void* recorded, void* (*prepare)(void*), void (*work)(void*),
             void (*release)(void*)) {
    const std::shared_ptr<void> held(recorded, release);
    static_cast<void>(Captures::get().put(*static_cast<HostStream*>(stream), [held, prepare, work] {
        return [work, argument = prepare(held.get())] { work(argument); };
    }));
}

}  // namespace

Driver& Driver::get() {
    static Driver* const driver = new Driver;
    // Their threads are joined, where they are through.
    static const std::unique_ptr<Driver, void (*)(Driver*)> at_exit(
        driver, [](Driver* one) { one->drop_destroyed(); });
    return *driver;
}

void Driver::drop_destroyed() {
    const std::lock_guard guard(mutex);
    std::erase_if(destroyed, [](const auto& one) { return one->is_done(); });
}

cudaError_t Driver::answer(const char* function, cudaError_t error) {
    Driver& driver = get();
    {
        const std::lock_guard guard(driver.mutex);
        ++driver.calls[function];
    }
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t Driver::take_last_error() { return std::exchange(last, cudaSuccess); }
cudaError_t Driver::last_error() { return last; }

int Driver::current() const { return current_device; }

cudaError_t Driver::set_current(int device) {
    if (!has_driver()) return cudaErrorInsufficientDriver;
    if (!has_device(device)) return cudaErrorInvalidDevice;
    current_device = device;
    return open_context(device);
}

cudaError_t Driver::open_context() { return open_context(current()); }

cudaError_t Driver::open_context(int device) {
    if (!has_driver()) return cudaErrorInsufficientDriver;
    if (device_count == 0) return cudaErrorNoDevice;
    const std::lock_guard guard(mutex);
    if (const auto found = broken.find(device); found != broken.end()) return found->second;
    contexts.insert(device);
    return cudaSuccess;
}

std::shared_ptr<HostStream> Driver::default_stream(int device) {
    const auto index = static_cast<std::size_t>(device);
    if (default_streams.size() <= index) default_streams.resize(index + 1);
    if (default_streams[index] == nullptr) {
        default_streams[index] = std::make_shared<HostStream>(device);
    }
    return default_streams[index];
}

bool Driver::is_default(cudaStream_t handle) const {
    return handle == nullptr || handle == cudaStreamLegacy;
}

std::shared_ptr<HostStream> Driver::find(cudaStream_t handle) {
    const std::lock_guard guard(mutex);
    if (is_default(handle)) return default_stream(current());
    const auto found = streams.find(handle);
    return found == streams.end() ? nullptr : found->second.queue;
}

cudaError_t Driver::make_stream(cudaStream_t* stream, bool is_blocking) {
    auto made = std::make_shared<HostStream>(current());
    made->is_captured = is_captured;
    made->capture = capture;
    drop_destroyed();
    const std::lock_guard guard(mutex);
    *stream = made.get();
    streams.emplace(*stream, Stream{std::move(made), is_blocking});
    return cudaSuccess;
}

cudaError_t Driver::destroy_stream(cudaStream_t stream) {
    const std::lock_guard guard(mutex);
    const auto found = streams.find(stream);
    if (found == streams.end()) return cudaErrorInvalidResourceHandle;
    found->second.queue->close();
    destroyed.push_back(std::move(found->second.queue));
    streams.erase(found);
    return cudaSuccess;
}

std::vector<std::shared_ptr<HostStream>> Driver::streams_of(int device, bool blocking_alone) {
    std::vector<std::shared_ptr<HostStream>> found;
    const std::lock_guard guard(mutex);
    for (const auto& [handle, stream] : streams) {
        if (stream.queue->device != device) continue;
        if (stream.is_blocking || !blocking_alone) found.push_back(stream.queue);
    }
    if (blocking_alone) return found;
    for (const auto& one : destroyed) {
        if (one->device == device) found.push_back(one);
    }
    const auto index = static_cast<std::size_t>(device);
    if (index < default_streams.size() && default_streams[index] != nullptr) {
        found.push_back(default_streams[index]);
    }
    return found;
}

namespace {

// `after` goes on when `before` has done what it was given so far.
void order(HostStream& before, HostStream& after) {
    if (before.is_done()) return;
    const auto point = std::make_shared<HostPoint>();
    before.put([point] { point->reach(); });
    after.put([point] { point->wait(); });
}

}  // namespace

cudaError_t Driver::put(cudaStream_t handle, std::function<void()> work, Takes takes) {
    const auto stream = find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    switch (Captures::get().put(*stream, [work] { return work; })) {
        case Captures::Put::done:
            return cudaSuccess;
        case Captures::Put::invalid:
            return cudaErrorStreamCaptureInvalidated;
        case Captures::Put::not_captured:
            break;
    }
    if (is_default(handle)) {
        for (const auto& other : streams_of(stream->device, true)) {
            if (Captures::get().forbidden_on(*other) != cudaSuccess) {
                return cudaErrorStreamCaptureImplicit;
            }
        }
        for (const auto& other : streams_of(stream->device, true)) order(*other, *stream);
    } else {
        std::shared_ptr<HostStream> the_default;
        {
            const std::lock_guard guard(mutex);
            const auto index = static_cast<std::size_t>(stream->device);
            const bool is_used =
                index < default_streams.size() && default_streams[index] != nullptr;
            const auto found = streams.find(handle);
            if (is_used && found != streams.end() && found->second.is_blocking) {
                the_default = default_streams[index];
            }
        }
        if (the_default != nullptr) order(*the_default, *stream);
    }
    if (takes == Takes::no_time && stream->is_done()) {  // as a card's driver: no thread is woken
        work();
    } else if (stream->is_full()) {  // the driver waits with its lock
        const std::lock_guard guard(lock);
        stream->put(std::move(work));
    } else {
        stream->put(std::move(work));
    }
    return cudaSuccess;
}

void Driver::finish(int device) {
    for (const auto& one : streams_of(device, false)) one->synchronize();
}

bool Driver::is_idle(int device) {
    for (const auto& one : streams_of(device, false)) {
        if (!one->is_done()) return false;
    }
    return true;
}

std::optional<int> Driver::owner_of(const void* pointer, std::size_t bytes) const {
    try {
        return memory.owner(pointer, bytes);
    } catch (const UsageError&) {
        return std::nullopt;
    }
}

const Kernel* Driver::kernel(const void* address) const {
    const std::lock_guard guard(mutex);
    const auto found = kernels.find(address);
    return found == kernels.end() ? nullptr : &found->second;
}

void Driver::load(const void* address, int device) {
    {
        const std::lock_guard guard(mutex);
        if (!loaded.emplace(address, device).second) return;
    }
    if (!is_idle(device)) ++late_loads;
    finish(device);
}

void register_kernel(const void* address, Kernel kernel) {
    Driver& driver = Driver::get();
    const std::lock_guard guard(driver.mutex);
    driver.kernels.insert_or_assign(address, std::move(kernel));
}

// Knobs -------------------------------------------------------------------------------------------

void set_devices(int devices) { Driver::get().device_count = devices; }
int devices() { return Driver::get().device_count; }
void share_device() { Driver::get().is_shared = true; }
void set_driver_version(int version) { Driver::get().driver_version = version; }
void set_memory(std::size_t bytes) { Driver::get().memory.set_limit(bytes); }
void set_architecture(int architecture) { Driver::get().architecture = architecture; }
void set_launch_delay(std::chrono::microseconds delay) { Driver::get().launch_delay = delay; }

void break_device(int device, cudaError_t error) {
    const std::lock_guard guard(Driver::get().mutex);
    Driver::get().broken[device] = error;
}

void start_anew() {
    Driver& driver = Driver::get();
    driver.device_count = 1;
    driver.is_shared = false;
    driver.driver_version = CUDART_VERSION;
    driver.architecture = 90;
    driver.launch_delay = std::chrono::microseconds{0};
    driver.staged_copies = 0;
    driver.late_loads = 0;
    driver.memory.set_limit(testing::HostMemory::usual_limit);
    current_device = 0;
    last = cudaSuccess;
    decltype(driver.default_streams) ended;  // without the mutex, which their work may take
    const std::lock_guard guard(driver.mutex);
    ended.swap(driver.default_streams);
    driver.contexts.clear();
    driver.broken.clear();
    driver.loaded.clear();
    driver.peers.clear();
    driver.calls.clear();
}

std::set<int> contexts() {
    const std::lock_guard guard(Driver::get().mutex);
    return Driver::get().contexts;
}

std::size_t allocated() { return Driver::get().memory.allocated(); }

std::size_t handles() {
    const std::lock_guard guard(Driver::get().mutex);
    return Driver::get().streams.size() + Driver::get().events.size();
}

std::size_t late_loads() { return Driver::get().late_loads; }
std::size_t kernels_not_loaded() {
    const Driver& driver = Driver::get();
    const std::lock_guard guard(driver.mutex);
    std::size_t count = 0;
    for (const auto& [address, kernel] : driver.kernels) {
        count += driver.loaded.contains({address, driver.current()}) ? 0U : 1U;
    }
    return count;
}
std::size_t staged_copies() { return Driver::get().staged_copies; }

std::size_t calls_of(const std::string& function) {
    const std::lock_guard guard(Driver::get().mutex);
    const auto found = Driver::get().calls.find(function);
    return found == Driver::get().calls.end() ? 0 : found->second;
}

HeldDriver::HeldDriver() { Driver::get().lock.lock(); }
HeldDriver::~HeldDriver() { Driver::get().lock.unlock(); }

// For the stand-in NCCL ---------------------------------------------------------------------------

namespace {

const ddp_host_driver shown{
    [] { return Driver::get().current(); },
    [](CUstream_st* handle) -> CUstream_st* { return Driver::get().find(handle).get(); },
    [](int device, const void* memory, std::size_t bytes) {
        return Driver::get().owner_of(memory, bytes) == device ? 1 : 0;
    },
    [](std::size_t bytes) -> void* {
        void* memory = nullptr;
        return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
    },
    [](void* memory) { Driver::get().memory.free(memory); },  // from under what still runs
    [](int device) {
        const auto process = static_cast<unsigned long long>(::getpid());
        const bool is_own = devices() == 1 && !Driver::get().is_shared;
        return is_own ? process << 8U : static_cast<unsigned long long>(device);
    },
};

}  // namespace
}  // namespace ddp::standin_cuda

const ddp_host_driver* ddp_find_host_driver() { return &ddp::standin_cuda::shown; }
