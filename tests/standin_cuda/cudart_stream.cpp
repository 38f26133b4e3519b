// Streams and events of the stand-in runtime.
#include "standin_cuda/driver.hpp"

#include <chrono>

using ddp::standin_cuda::CapturedPoint;
using ddp::standin_cuda::Captures;
using ddp::standin_cuda::Driver;
using ddp::standin_cuda::Takes;
using ddp::testing::HostPoint;

namespace {

cudaError_t answer(const char* function, cudaError_t error) {
    return Driver::answer(function, error);
}

// An event's point, or that it does not exist.
struct Found {
    cudaError_t error = cudaSuccess;
    std::shared_ptr<HostPoint> point;
    std::shared_ptr<CapturedPoint> captured;
};
Found find(cudaEvent_t event) {
    Driver& driver = Driver::get();
    const std::lock_guard guard(driver.mutex);
    if (!driver.events.contains(event)) return {cudaErrorInvalidResourceHandle, nullptr, nullptr};
    return {cudaSuccess, event->point, event->captured};
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    DDP_STANDIN_OPEN("cudaDeviceGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return answer("cudaDeviceGetStreamPriorityRange", cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    DDP_STANDIN_OPEN("cudaStreamCreateWithFlags");
    return answer("cudaStreamCreateWithFlags",
                  Driver::get().make_stream(stream, flags != cudaStreamNonBlocking));
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    DDP_STANDIN_OPEN("cudaStreamCreate");
    return answer("cudaStreamCreate", Driver::get().make_stream(stream, true));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    DDP_STANDIN_OPEN("cudaStreamCreateWithPriority");
    return answer("cudaStreamCreateWithPriority",
                  Driver::get().make_stream(stream, flags != cudaStreamNonBlocking));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    DDP_STANDIN_OPEN("cudaStreamDestroy");
    return answer("cudaStreamDestroy", Driver::get().destroy_stream(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    DDP_STANDIN_OPEN("cudaStreamQuery");
    const auto stream = Driver::get().find(handle);
    if (stream == nullptr) return answer("cudaStreamQuery", cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = Captures::get().forbidden_on(*stream); error != cudaSuccess) {
        return answer("cudaStreamQuery", error);
    }
    DDP_STANDIN_UNSAFE("cudaStreamQuery");
    return answer("cudaStreamQuery", stream->is_done() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    DDP_STANDIN_OPEN("cudaStreamSynchronize");
    const auto stream = Driver::get().find(handle);
    if (stream == nullptr) return answer("cudaStreamSynchronize", cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = Captures::get().forbidden_on(*stream); error != cudaSuccess) {
        return answer("cudaStreamSynchronize", error);
    }
    DDP_STANDIN_UNSAFE("cudaStreamSynchronize");
    stream->synchronize();
    return answer("cudaStreamSynchronize", Driver::get().open_context());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    DDP_STANDIN_OPEN("cudaStreamWaitEvent");
    const Found found = find(event);
    if (found.error != cudaSuccess) return answer("cudaStreamWaitEvent", found.error);
    const auto stream = Driver::get().find(handle);
    if (stream == nullptr) return answer("cudaStreamWaitEvent", cudaErrorInvalidResourceHandle);
    const bool is_default = Driver::get().is_default(handle);
    if (const cudaError_t error = Captures::get().wait(*stream, found.captured, is_default);
        error != cudaSuccess || found.captured != nullptr) {
        return answer("cudaStreamWaitEvent", error);
    }
    if (found.point == nullptr) return answer("cudaStreamWaitEvent", cudaSuccess);
    const auto takes = found.point->is_reached() ? Takes::no_time : Takes::time;
    const auto wait = [point = found.point] { point->wait(); };
    return answer("cudaStreamWaitEvent", Driver::get().put(handle, wait, takes));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    DDP_STANDIN_OPEN("cudaEventCreateWithFlags");
    Driver& driver = Driver::get();
    auto made = std::make_unique<CUevent_st>(
        CUevent_st{driver.current(), nullptr, nullptr, (flags & cudaEventDisableTiming) == 0});
    const std::lock_guard guard(driver.mutex);
    *event = made.get();
    driver.events.emplace(*event, std::move(made));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    DDP_STANDIN_OPEN("cudaEventDestroy");
    Driver& driver = Driver::get();
    bool existed = false;
    {
        const std::lock_guard guard(driver.mutex);
        existed = driver.events.erase(event) == 1;
    }
    return answer("cudaEventDestroy", existed ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    DDP_STANDIN_OPEN("cudaEventRecord");
    Driver& driver = Driver::get();
    const auto stream = driver.find(handle);
    if (stream == nullptr) return answer("cudaEventRecord", cudaErrorInvalidResourceHandle);
    auto point = std::make_shared<HostPoint>();
    std::shared_ptr<CapturedPoint> captured;
    if (const cudaError_t error = Captures::get().record(*stream, captured); error != cudaSuccess) {
        return answer("cudaEventRecord", error);
    }
    {
        const std::lock_guard guard(driver.mutex);
        const bool fits = driver.events.contains(event) && event->device == stream->device;
        if (fits) event->captured = captured;
        if (fits) event->point = point;
        if (!fits) point = nullptr;
    }
    if (point == nullptr) return answer("cudaEventRecord", cudaErrorInvalidResourceHandle);
    if (captured != nullptr) return answer("cudaEventRecord", cudaSuccess);
    const auto reach = [point] { point->reach(); };
    return answer("cudaEventRecord", driver.put(handle, reach, Takes::no_time));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    DDP_STANDIN_OPEN("cudaEventQuery");
    { const std::lock_guard guard(Driver::get().lock); }  // it may block on the driver's lock
    DDP_STANDIN_UNSAFE("cudaEventQuery");
    const Found found = find(event);
    if (found.error != cudaSuccess) return answer("cudaEventQuery", found.error);
    if (found.captured != nullptr) return answer("cudaEventQuery", cudaErrorCapturedEvent);
    const bool is_done = found.point == nullptr || found.point->is_reached();
    return answer("cudaEventQuery", is_done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
    DDP_STANDIN_OPEN("cudaEventElapsedTime");
    const auto say = [](cudaError_t error) { return answer("cudaEventElapsedTime", error); };
    for (const cudaEvent_t event : {first, second}) {
        const Found found = find(event);
        if (found.error != cudaSuccess) return say(found.error);
        if (found.captured != nullptr) return say(cudaErrorCapturedEvent);
        if (found.point == nullptr || !event->is_timed) return say(cudaErrorInvalidResourceHandle);
        if (!found.point->is_reached()) return say(cudaErrorNotReady);
    }
    const std::chrono::duration<float, std::milli> between =
        find(second).point->time() - find(first).point->time();
    *milliseconds = between.count();
    return say(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    DDP_STANDIN_OPEN("cudaEventSynchronize");
    DDP_STANDIN_UNSAFE("cudaEventSynchronize");
    const Found found = find(event);
    if (found.error != cudaSuccess) return answer("cudaEventSynchronize", found.error);
    if (found.captured != nullptr) return answer("cudaEventSynchronize", cudaErrorCapturedEvent);
    if (found.point != nullptr) found.point->wait();
    return answer("cudaEventSynchronize", Driver::get().open_context());
}

}  // extern "C"
