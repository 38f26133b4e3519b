#include "support/host_device_api.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

struct CUevent_st {
    int device;
    std::shared_ptr<ddp::testing::HostPoint> point;  // null: never recorded
};

namespace ddp::testing {

namespace {
std::atomic<HostDeviceApi*> the_api = nullptr;
std::atomic<unsigned long long> objects = 0;

// A thread's current device is 0 in each new object.
struct Current {
    unsigned long long object = 0;
    int device = 0;
};
thread_local Current current_device;

}  // namespace

HostDeviceApi::HostDeviceApi(int devices) : devices_(devices), id_(++objects) {
    for (int device = 0; device < devices; ++device) {
        default_streams_.push_back(std::make_shared<HostStream>(device));
    }
    if (the_api.exchange(this) != nullptr) {
        std::fprintf(stderr, "HostDeviceApi: there is one already\n");
        std::abort();
    }
}

HostDeviceApi::~HostDeviceApi() {
    the_api = nullptr;
    streams_.clear();
    default_streams_.clear();
    destroyed_.clear();
}

void HostDeviceApi::fail(const char* call, int device, Code code, const std::string& why) {
    throw BackendError(
        "cuda", static_cast<int>(code),
        std::string(call) + " on " + to_string(Device{DeviceType::cuda, device}) + ": " + why);
}

void HostDeviceApi::set_reason(std::string reason) {
    const std::lock_guard lock(mutex_);
    reason_ = std::move(reason);
}

unsigned long long HostDeviceApi::bus_id(int device) const {
    const auto process = static_cast<unsigned long long>(::getpid());
    return devices_ == 1 ? process << 8U : static_cast<unsigned long long>(device);
}

device::Probe HostDeviceApi::probe() const noexcept {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return {0, reason_};
    return devices_ > 0 ? device::Probe{devices_, ""} : device::Probe{0, "no device"};
}

void HostDeviceApi::require_driver(const char* call) const {
    const device::Probe probed = probe();
    if (probed.devices == 0) fail(call, 0, Code::insufficient_driver, probed.reason);
}

std::string HostDeviceApi::describe(int device) {
    require_driver("describe");
    if (device < 0 || device >= devices_)
        fail("describe", device, Code::invalid_device, "no such device");
    return "host memory (device " + std::to_string(device) + " of " + std::to_string(devices_) +
           ")";
}

int HostDeviceApi::current() { return current_device.object == id_ ? current_device.device : 0; }

void HostDeviceApi::use(int device) {
    require_driver("use");
    if (device < 0 || device >= devices_)
        fail("use", device, Code::invalid_device, "no such device");
    current_device = {id_, device};
}

bool HostDeviceApi::owns(int device, const void* memory, std::size_t bytes) {
    try {
        return memory_.owner(memory, bytes) == device;
    } catch (const UsageError&) {
        return false;
    }
}

Device HostDeviceApi::device_of(const void* pointer) {
    const int owner = memory_.owner(pointer, 0).value_or(HostMemory::pinned);
    return owner == HostMemory::pinned ? Device{} : Device{DeviceType::cuda, owner};
}

void* HostDeviceApi::allocate(std::size_t bytes) {
    require_driver("allocate");
    return memory_.allocate(bytes, current());
}

void HostDeviceApi::finish(int device) {
    std::vector<StreamPtr> busy;
    {
        const std::lock_guard lock(mutex_);
        const auto add = [&](const StreamPtr& stream) {
            if (stream->device == device) busy.push_back(stream);
        };
        for (const auto& [handle, stream] : streams_) add(stream);
        for (const StreamPtr& stream : default_streams_) add(stream);
        for (const StreamPtr& stream : destroyed_) add(stream);
    }
    for (const StreamPtr& stream : busy) stream->synchronize();
}

void HostDeviceApi::free(void* memory) noexcept {
    finish(memory_.owner(memory, 0).value_or(HostMemory::pinned));
    memory_.free(memory);
}

void HostDeviceApi::synchronize_device() {
    require_driver("synchronize_device");
    finish(current());
}

void* HostDeviceApi::allocate_pinned(std::size_t bytes) {
    require_driver("allocate_pinned");
    return memory_.allocate(bytes, HostMemory::pinned);
}

void HostDeviceApi::free_pinned(void* memory) noexcept { memory_.free(memory); }

CUstream_st* HostDeviceApi::make_stream(device::Priority) {
    require_driver("make_stream");
    auto made = std::make_shared<HostStream>(current());
    const std::lock_guard lock(mutex_);
    std::erase_if(destroyed_, [](const StreamPtr& stream) { return stream->has_ended(); });
    CUstream_st* const handle = made.get();
    streams_.emplace(handle, std::move(made));
    return handle;
}

void HostDeviceApi::destroy_stream(CUstream_st* handle) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(handle);
    if (found == streams_.end()) {
        std::fprintf(stderr, "HostDeviceApi: destroy_stream of a stream that does not exist\n");
        std::abort();
    }
    found->second->close();
    destroyed_.push_back(std::move(found->second));
    streams_.erase(found);
}

CUstream_st* HostDeviceApi::find(CUstream_st* handle) {
    const int device = current();
    const std::lock_guard lock(mutex_);
    if (handle == nullptr) {
        return device < devices_ ? default_streams_[static_cast<std::size_t>(device)].get()
                                 : nullptr;
    }
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second.get();
}

HostDeviceApi::StreamPtr HostDeviceApi::stream(const char* call, Stream handle) {
    require_driver(call);
    const int device = current();
    const std::lock_guard lock(mutex_);
    if (handle.handle() == nullptr) return default_streams_[static_cast<std::size_t>(device)];
    const auto found = streams_.find(handle.handle());
    if (found == streams_.end())
        fail(call, device, Code::invalid_handle, "the stream does not exist");
    return found->second;
}

bool HostDeviceApi::is_done(Stream handle) { return stream("is_done", handle)->is_done(); }

void HostDeviceApi::synchronize(Stream handle) { stream("synchronize", handle)->synchronize(); }

CUevent_st* HostDeviceApi::make_event() {
    require_driver("make_event");
    auto made = std::make_unique<CUevent_st>(CUevent_st{current(), nullptr});
    const std::lock_guard lock(mutex_);
    CUevent_st* const event = made.get();
    events_.emplace(event, std::move(made));
    return event;
}

void HostDeviceApi::destroy_event(CUevent_st* event) noexcept {
    const std::lock_guard lock(mutex_);
    if (events_.erase(event) == 0) {
        std::fprintf(stderr, "HostDeviceApi: destroy_event of an event that does not exist\n");
        std::abort();
    }
}

void HostDeviceApi::record(CUevent_st* event, Stream handle) {
    const StreamPtr on = stream("record", handle);
    auto point = std::make_shared<HostPoint>();
    {
        const std::lock_guard lock(mutex_);
        if (!events_.contains(event)) {
            fail("record", on->device, Code::invalid_handle, "the event does not exist");
        }
        if (event->device != on->device) {
            fail("record", on->device, Code::invalid_handle,
                 "the event is of cuda:" + std::to_string(event->device));
        }
        event->point = point;
    }
    on->put([point] { point->reach(); });
}

bool HostDeviceApi::is_done(CUevent_st* event) {
    require_driver("is_done");
    const std::lock_guard lock(mutex_);
    if (!events_.contains(event)) {
        fail("is_done", current(), Code::invalid_handle, "the event does not exist");
    }
    return event->point == nullptr || event->point->is_reached();
}

std::chrono::nanoseconds HostDeviceApi::time_between(CUevent_st* first, CUevent_st* second) {
    require_driver("time_between");
    const std::lock_guard lock(mutex_);
    for (const CUevent_st* const event : {first, second}) {
        if (event->point == nullptr || !event->point->is_reached()) {
            fail("time_between", event->device, Code::invalid_handle, "an event has not come");
        }
    }
    return second->point->time() - first->point->time();
}

void HostDeviceApi::wait(Stream handle, CUevent_st* event) {
    const StreamPtr on = stream("wait", handle);
    std::shared_ptr<HostPoint> point;
    {
        const std::lock_guard lock(mutex_);
        if (!events_.contains(event)) {
            fail("wait", on->device, Code::invalid_handle, "the event does not exist");
        }
        point = event->point;
    }
    if (point != nullptr) on->put([point] { point->wait(); });
}

namespace {
const ddp_host_driver driver{
    [] { return the_api.load()->current(); },
    [](CUstream_st* handle) { return the_api.load()->find(handle); },
    [](int device, const void* memory, std::size_t bytes) {
        return the_api.load()->owns(device, memory, bytes) ? 1 : 0;
    },
    [](std::size_t bytes) -> void* {
        try {
            return the_api.load()->allocate(bytes);
        } catch (const Error&) {
            return nullptr;
        }
    },
    [](void* memory) { the_api.load()->free(memory); },
    [](int device) { return the_api.load()->bus_id(device); },
};
}  // namespace

}  // namespace ddp::testing

const ddp_host_driver* ddp_find_host_driver() {
    return ddp::testing::the_api.load() == nullptr ? nullptr : &ddp::testing::driver;
}
