#include "contract/launch_recorder.hpp"

#include <utility>

namespace ddp::contract {

LaunchRecorder::LaunchRecorder(std::shared_ptr<ControlRegion> region, std::uint32_t group,
                               int ranks)
    : region_(std::move(region)),
      group_(region_->own_page(), group, ranks, RecordedGroup::On::gpu),
      writer_(region_->own_page()),
      keeper_(region_->own_page()) {}

LaunchRecorder::Launch LaunchRecorder::launched(const CallSignature& call, const CallSite& site,
                                                std::chrono::steady_clock::time_point at) noexcept {
    if (!group_.has_entry()) {
        region_->own_page().unrecorded_bytes.fetch_add(call.elements * size_of(call.dtype),
                                                       std::memory_order_relaxed);
        return launched_transfer();
    }
    const std::uint64_t sequence = ++launches_;
    OperationEntry& entry = writer_.write(call, site, group_.id(), sequence, at);
    add_bytes(group_.entry()->bytes, call);
    group_.entry()->started.store(sequence, std::memory_order_release);
    Launch launch{&entry, entry.serial.load(std::memory_order_relaxed), sequence, {}};
    if (region_->own_timeline().is_on()) {
        launch.timed = {.what = Activity::collective,
                        .started_ns = Timeline::now_ns(),
                        .number = sequence,
                        .group = group_.id(),
                        .call = call,
                        .file = entry.file.load(std::memory_order_relaxed),
                        .line = site.line()};
    }
    return launch;
}

LaunchRecorder::Launch LaunchRecorder::launched_transfer() noexcept {
    region_->own_page().in_unrecorded.fetch_add(1, std::memory_order_relaxed);
    return {};
}

void LaunchRecorder::aborted(const Launch& launch) noexcept {
    note_end(launch, true);
    if (launch.entry == nullptr)
        region_->own_page().in_unrecorded.fetch_sub(1, std::memory_order_relaxed);
}

void LaunchRecorder::note_end(const Launch& launch, bool failed) const noexcept {
    if (launch.timed.started_ns == 0) return;
    TimedActivity timed = launch.timed;
    timed.ended_ns = Timeline::now_ns();
    timed.failed = failed;
    region_->own_timeline().add(timed);
}

void LaunchRecorder::keep(Launch& launch, const CallSignature& call, const CallSite& site,
                          std::chrono::steady_clock::time_point at) noexcept {
    if (launch.entry == nullptr ||
        launch.entry->serial.load(std::memory_order_relaxed) == launch.serial)
        return;
    launch.entry = &keeper_.write(call, site, group_.id(), launch.sequence, at);
    launch.serial = launch.entry->serial.load(std::memory_order_relaxed);
}

// It may have been the turn of a later one to be seen first. What has come round in the ring since
// has another serial.
void LaunchRecorder::ended(const Launch& launch) noexcept {
    if (launch.entry == nullptr) return aborted(launch);
    if (launch.entry->serial.load(std::memory_order_relaxed) == launch.serial) {
        launch.entry->ended_ns.store(page_time_ns(), std::memory_order_relaxed);
    }
    note_end(launch, false);
    if (!group_.has_entry()) return;
    std::atomic<std::uint64_t>& ended = group_.entry()->ended;
    std::uint64_t before = ended.load(std::memory_order_relaxed);
    while (before < launch.sequence &&
           !ended.compare_exchange_weak(before, launch.sequence, std::memory_order_release)) {
    }
}

}  // namespace ddp::contract
