#include "reducer/gpu_times.hpp"

#include "tensor/device/current_gpu.hpp"
#include "tensor/device/device_api.hpp"

#include <algorithm>
#include <chrono>

namespace ddp::reducer {

GpuTimes::GpuTimes(const Device& gpu) : gpu_(gpu) {
    auto& api = device::device_api();
    const device::CurrentGpu current(api, gpu_.index);
    aside_ = api.make_stream(device::Priority::normal);
    computed_ = api.make_timed_event();
    averaged_ = api.make_timed_event();
}

GpuTimes::~GpuTimes() {
    auto& api = device::device_api();
    device::give_back_on(api, gpu_.index, [&] {
        for (const Bucket& bucket : buckets_) {
            api.destroy_event(bucket.ready);
            api.destroy_event(bucket.averaged);
        }
        api.destroy_event(averaged_);
        api.destroy_event(computed_);
        api.destroy_stream(aside_);
    });
}

void GpuTimes::start(std::size_t buckets) {
    auto& api = device::device_api();
    const device::CurrentGpu current(api, gpu_.index);
    while (buckets_.size() < buckets) {
        Bucket& bucket = buckets_.emplace_back();
        bucket.ready = api.make_timed_event();
        bucket.averaged = api.make_timed_event();
    }
    for (Bucket& bucket : buckets_) bucket.is_sent = false;
    is_captured_ = is_new_ = false;
    is_under_way_ = true;
}

// A graph's events have no times.
void GpuTimes::note(CUevent_st* event, Stream stream) {
    auto& api = device::device_api();
    const device::CurrentGpu current(api, gpu_.index);
    is_captured_ = is_captured_ || api.is_captured(stream);
    if (!is_captured_) api.record(event, stream);
}

void GpuTimes::note_ready(std::size_t bucket, Stream stream) {
    note(buckets_[bucket].ready, stream);
}

void GpuTimes::note_sent(std::size_t bucket, Work& work) {
    if (is_captured_) return;
    const device::CurrentGpu current(device::device_api(), gpu_.index);
    device::device_api().wait(aside_, buckets_[bucket].ready);  // of one rank alone it is none
    work.wait(aside_);
    note(buckets_[bucket].averaged, aside_);
    buckets_[bucket].is_sent = true;
}

void GpuTimes::note_computed(Stream stream) { note(computed_, stream); }

void GpuTimes::note_averaged(Stream stream) {
    note(averaged_, stream);
    is_new_ = !is_captured_;
    is_under_way_ = false;
}

void GpuTimes::finish_in_flight() noexcept {
    if (!is_under_way_ || is_captured_) return;
    device::give_back_on(device::device_api(), gpu_.index,
                         [this] { device::device_api().synchronize(aside_); });
    is_under_way_ = false;
}

// An operation runs from when its gradients are there and the one before has ended.
void GpuTimes::take_into(StepStatistics& statistics) {
    if (!is_new_) return;
    is_new_ = false;
    auto& api = device::device_api();
    const device::CurrentGpu current(api, gpu_.index);
    api.wait(aside_, averaged_);
    api.synchronize(aside_);
    CUevent_st* before = nullptr;
    statistics.communication = {};
    for (const Bucket& bucket : buckets_) {
        if (!bucket.is_sent) continue;
        const bool waits = before != nullptr && api.time_between(bucket.ready, before).count() > 0;
        statistics.communication +=
            api.time_between(waits ? before : bucket.ready, bucket.averaged);
        before = bucket.averaged;
    }
    statistics.exposed = api.time_between(computed_, averaged_);
    if (statistics.communication.count() <= 0) return;
    const auto share = static_cast<double>(statistics.exposed.count()) /
                       static_cast<double>(statistics.communication.count());
    statistics.overlap = std::clamp(1 - share, 0.0, 1.0);
}

}  // namespace ddp::reducer
