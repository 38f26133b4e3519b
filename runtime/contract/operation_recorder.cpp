#include "contract/operation_recorder.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

namespace ddp::contract {
namespace {

constexpr std::size_t most_name_bytes = 120;

// Of entries and names, which the threads of a rank share.
constinit std::mutex page_mutex;

// A free entry, else the one that was left first.
GroupEntry* entry_for(std::span<GroupEntry> entries) {
    GroupEntry* left = nullptr;
    for (GroupEntry& entry : entries) {
        if (entry.id.load(relaxed) == 0) return &entry;
        if (left == nullptr && entry.end.load(relaxed) != 0) left = &entry;
    }
    return left;
}

// The end of a path that is too long.
std::string_view shortened(std::string_view name) {
    return name.substr(name.size() - std::min(name.size(), most_name_bytes));
}

// Where the name stands, or is put now; 0 where there is no room. Whatever is in the page.
std::uint16_t find_or_add(ControlPage& page, std::string_view name) {
    const std::size_t size = sizeof page.files;
    const std::size_t used = std::clamp<std::size_t>(page.files_used.load(relaxed), 1, size);
    for (std::size_t at = 1; at < used;) {
        const std::size_t length = ::strnlen(page.files + at, used - at);
        if (std::string_view(page.files + at, length) == name) {
            return static_cast<std::uint16_t>(at);
        }
        at += length + 1;
    }
    if (name.empty() || used + name.size() + 1 > size) return 0;
    std::memcpy(page.files + used, name.data(), name.size());
    page.files[used + name.size()] = '\0';
    page.files_used.store(static_cast<std::uint16_t>(used + name.size() + 1), relaxed);
    return static_cast<std::uint16_t>(used);
}

}  // namespace

std::int64_t page_time_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::uint32_t group_id(std::uint32_t parent, std::string_view name) {
    std::uint32_t hash = 0x811c9dc5 ^ parent;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
    return std::max(hash, 1U);
}

void take_page(ControlPage& page, Timeline timeline) {
    const std::lock_guard lock(page_mutex);
    const std::int32_t pid = ::getpid();
    if (page.pid.load(relaxed) == pid) return;
    timeline.begin_program();
    for (GroupEntry& entry : page.groups) entry.id.store(0, relaxed);
    for (TransferEntry& entry : page.transfers) entry.since_ns.store(0, relaxed);
    for (OperationEntry& entry : page.operations) entry.serial.store(0, relaxed);
    page.checkpoints.store(0, relaxed);
    page.in_unrecorded.store(0, relaxed);
    page.phase.store(0, relaxed);
    page.step.store(0, relaxed);
    page.joined_ns.store(page_time_ns(), relaxed);
    page.pid.store(pid, std::memory_order_release);
}

RecordedGroup::RecordedGroup(ControlPage& page, std::uint32_t group, int ranks, On on)
    : page_(page) {
    if (group == 0 || ranks < 2) return;
    const std::lock_guard lock(page_mutex);
    entry_ = entry_for(page.groups);
    if (entry_ == nullptr) return;
    id_ = group;
    entry_->id.store(0, relaxed);
    entry_->size.store(static_cast<std::uint32_t>(ranks), relaxed);
    entry_->started.store(0, relaxed);
    entry_->ended.store(0, relaxed);
    entry_->end.store(0, relaxed);
    entry_->on_gpu.store(on == On::gpu ? 1 : 0, relaxed);
    entry_->id.store(group, std::memory_order_release);
}

bool RecordedGroup::has_entry() const noexcept {
    return entry_ != nullptr && entry_->id.load(relaxed) == id_;
}

// Another group may have the entry since. A forked copy of the rank leaves nothing.
void RecordedGroup::end(GroupEnd end) const noexcept {
    const std::int32_t pid = page_.pid.load(relaxed);
    if (entry_ == nullptr || (pid != 0 && pid != ::getpid())) return;
    const std::lock_guard lock(page_mutex);
    if (entry_->id.load(relaxed) != id_ || entry_->end.load(relaxed) != 0) return;
    entry_->end.store(static_cast<std::uint32_t>(end), std::memory_order_release);
}

OperationEntry& OperationWriter::write(const CallSignature& call, const CallSite& site,
                                       std::uint32_t group, std::uint64_t sequence,
                                       std::chrono::steady_clock::time_point at) noexcept {
    const std::uint64_t serial = page_.recorded.fetch_add(1, relaxed) + 1;
    OperationEntry& entry = page_.operations[(serial - 1) % recorded_operations];
    entry.serial.store(0, relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.sequence.store(sequence, relaxed);
    entry.elements.store(call.elements, relaxed);
    entry.started_ns.store(std::chrono::nanoseconds(at.time_since_epoch()).count(), relaxed);
    entry.ended_ns.store(0, relaxed);
    entry.group.store(group, relaxed);
    entry.source.store(call.source, relaxed);
    entry.root.store(call.root, relaxed);
    entry.line.store(site.line(), relaxed);
    entry.file.store(place_of(site.file()), relaxed);
    entry.kind.store(static_cast<std::uint8_t>(call.kind), relaxed);
    entry.dtype.store(static_cast<std::uint8_t>(call.dtype), relaxed);
    entry.op.store(static_cast<std::uint8_t>(call.op), relaxed);
    entry.uneven.store(call.uneven ? 1 : 0, relaxed);
    entry.serial.store(serial, std::memory_order_release);
    return entry;
}

std::uint16_t OperationWriter::place_of(const char* file) noexcept {
    KnownFile& known = known_[reinterpret_cast<std::uintptr_t>(file) / 16 % known_.size()];
    if (known.name == file) return known.place;
    const std::lock_guard lock(page_mutex);
    known = {file, find_or_add(page_, shortened(file))};
    return known.place;
}

void OperationRecorder::started(const CallSignature& call, const CallSite& site,
                                std::uint64_t sequence,
                                std::chrono::steady_clock::time_point at) noexcept {
    running_ = &writer_.write(call, site, group_.id(), sequence, at);
    if (timeline_.is_on()) {
        timed_ = {.what = Activity::collective,
                  .started_ns = Timeline::now_ns(),
                  .number = sequence,
                  .group = group_.id(),
                  .call = call,
                  .file = running_->file.load(relaxed),
                  .line = site.line()};
    }
    if (GroupEntry* const entry = group_.entry()) {
        add_bytes(entry->bytes, call);
        entry->started.store(sequence, std::memory_order_release);
    } else {
        page_.unrecorded_bytes.fetch_add(call.elements * size_of(call.dtype), relaxed);
        page_.in_unrecorded.fetch_add(1, relaxed);
    }
}

// Another group's thread may have come round in the ring meanwhile: then it marks that one's entry,
// of which only the time is wrong.
void OperationRecorder::ended() noexcept {
    running_->ended_ns.store(page_time_ns(), relaxed);
    if (timeline_.is_on()) {
        timed_.ended_ns = Timeline::now_ns();
        timeline_.add(timed_);
    }
    if (GroupEntry* const entry = group_.entry()) {
        entry->ended.store(entry->started.load(relaxed), std::memory_order_release);
    } else {
        page_.in_unrecorded.fetch_sub(1, relaxed);
    }
}

void OperationRecorder::failed() noexcept {
    if (timeline_.is_on()) {
        timed_.ended_ns = Timeline::now_ns();
        timed_.failed = true;
        timeline_.add(timed_);
    }
    if (group_.entry() == nullptr) page_.in_unrecorded.fetch_sub(1, relaxed);
    group_.end(GroupEnd::failed);
}

void TransferRecorder::waits(const Transfer& transfer, const CallSite& site) noexcept {
    if (std::exchange(is_waiting_, true)) return;
    const std::lock_guard lock(page_mutex);
    if (timeline_.is_on()) {
        timed_ = {.what = Activity::transfer,
                  .started_ns = Timeline::now_ns(),
                  .call = {.root = transfer.peer, .elements = transfer.bytes},
                  .sends = transfer.sends,
                  .file = find_or_add(page_, shortened(site.file())),
                  .line = site.line()};
    }
    for (std::size_t i = 0; i < recorded_groups; ++i) {
        const GroupEntry& group = page_.groups[i];
        if (id_ == 0 || group.id.load(relaxed) != id_ || group.end.load(relaxed) != 0) continue;
        entry_ = &page_.transfers[i];
        entry_->bytes.store(transfer.bytes, relaxed);
        entry_->peer.store(transfer.peer, relaxed);
        entry_->line.store(site.line(), relaxed);
        entry_->file.store(find_or_add(page_, shortened(site.file())), relaxed);
        entry_->sends.store(transfer.sends ? 1 : 0, relaxed);
        entry_->since_ns.store(page_time_ns(), std::memory_order_release);
        return;
    }
}

void TransferRecorder::goes_on() noexcept {
    if (!std::exchange(is_waiting_, false)) return;
    if (timeline_.is_on()) {
        timed_.ended_ns = Timeline::now_ns();
        timeline_.add(timed_);
    }
    if (entry_ == nullptr) return;
    entry_->since_ns.store(0, relaxed);
    entry_ = nullptr;
}

}  // namespace ddp::contract
