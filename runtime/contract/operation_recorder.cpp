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

constexpr auto relaxed = std::memory_order_relaxed;
constexpr std::size_t most_name_bytes = 120;

// Of entries and names, which the threads of a rank share.
constinit std::mutex page_mutex;

std::int64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

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

std::uint32_t group_id(std::uint32_t parent, std::string_view name) {
    std::uint32_t hash = 0x811c9dc5 ^ parent;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
    return std::max(hash, 1U);
}

void take_page(ControlPage& page) {
    const std::lock_guard lock(page_mutex);
    const std::int32_t pid = ::getpid();
    if (page.pid.load(relaxed) == pid) return;
    for (GroupEntry& entry : page.groups) entry.id.store(0, relaxed);
    for (TransferEntry& entry : page.transfers) entry.since_ns.store(0, relaxed);
    for (OperationEntry& entry : page.operations) entry.serial.store(0, relaxed);
    page.checkpoints.store(0, relaxed);
    page.in_unrecorded.store(0, relaxed);
    page.phase.store(0, relaxed);
    page.step.store(0, relaxed);
    page.joined_ns.store(now_ns(), relaxed);
    page.pid.store(pid, std::memory_order_release);
}

OperationRecorder::OperationRecorder(ControlPage& page, std::uint32_t group, int ranks)
    : page_(page) {
    if (group == 0 || ranks < 2) return;
    const std::lock_guard lock(page_mutex);
    group_ = entry_for(page.groups);
    if (group_ == nullptr) return;
    id_ = group;
    group_->id.store(0, relaxed);
    group_->size.store(static_cast<std::uint32_t>(ranks), relaxed);
    group_->started.store(0, relaxed);
    group_->ended.store(0, relaxed);
    group_->end.store(0, relaxed);
    group_->id.store(group, std::memory_order_release);
}

OperationRecorder::~OperationRecorder() { end_group(GroupEnd::left); }

void OperationRecorder::failed() noexcept {
    if (group_ == nullptr) page_.in_unrecorded.fetch_sub(1, relaxed);
    end_group(GroupEnd::failed);
}

// The first one counts. Another group may have the entry since. A forked copy of the rank leaves
// nothing.
void OperationRecorder::end_group(GroupEnd end) noexcept {
    const std::int32_t pid = page_.pid.load(relaxed);
    if (group_ == nullptr || (pid != 0 && pid != ::getpid())) return;
    const std::lock_guard lock(page_mutex);
    if (group_->id.load(relaxed) != id_ || group_->end.load(relaxed) != 0) return;
    group_->end.store(static_cast<std::uint32_t>(end), std::memory_order_release);
}

void OperationRecorder::started(const CallSignature& call, const CallSite& site,
                                std::uint64_t sequence,
                                std::chrono::steady_clock::time_point at) noexcept {
    const std::uint64_t serial = page_.recorded.fetch_add(1, relaxed) + 1;
    running_ = &page_.operations[(serial - 1) % recorded_operations];
    running_->serial.store(0, relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    running_->sequence.store(sequence, relaxed);
    running_->elements.store(call.elements, relaxed);
    running_->started_ns.store(std::chrono::nanoseconds(at.time_since_epoch()).count(), relaxed);
    running_->ended_ns.store(0, relaxed);
    running_->group.store(id_, relaxed);
    running_->source.store(call.source, relaxed);
    running_->root.store(call.root, relaxed);
    running_->line.store(site.line(), relaxed);
    running_->file.store(place_of(site.file()), relaxed);
    running_->kind.store(static_cast<std::uint8_t>(call.kind), relaxed);
    running_->dtype.store(static_cast<std::uint8_t>(call.dtype), relaxed);
    running_->op.store(static_cast<std::uint8_t>(call.op), relaxed);
    running_->uneven.store(call.uneven ? 1 : 0, relaxed);
    running_->serial.store(serial, std::memory_order_release);
    if (group_ != nullptr) {
        group_->started.store(sequence, std::memory_order_release);
    } else {
        page_.in_unrecorded.fetch_add(1, relaxed);
    }
}

// Another group's thread may have come round in the ring meanwhile: then it marks that one's entry,
// of which only the time is wrong.
void OperationRecorder::ended() noexcept {
    running_->ended_ns.store(now_ns(), relaxed);
    if (group_ != nullptr) {
        group_->ended.store(group_->started.load(relaxed), std::memory_order_release);
    } else {
        page_.in_unrecorded.fetch_sub(1, relaxed);
    }
}

void TransferRecorder::waits(const Transfer& transfer, const CallSite& site) noexcept {
    if (std::exchange(is_waiting_, true)) return;
    const std::lock_guard lock(page_mutex);
    for (std::size_t i = 0; i < recorded_groups; ++i) {
        const GroupEntry& group = page_.groups[i];
        if (id_ == 0 || group.id.load(relaxed) != id_ || group.end.load(relaxed) != 0) continue;
        entry_ = &page_.transfers[i];
        entry_->bytes.store(transfer.bytes, relaxed);
        entry_->peer.store(transfer.peer, relaxed);
        entry_->line.store(site.line(), relaxed);
        entry_->file.store(find_or_add(page_, shortened(site.file())), relaxed);
        entry_->sends.store(transfer.sends ? 1 : 0, relaxed);
        entry_->since_ns.store(now_ns(), std::memory_order_release);
        return;
    }
}

void TransferRecorder::goes_on() noexcept {
    if (!std::exchange(is_waiting_, false) || entry_ == nullptr) return;
    entry_->since_ns.store(0, relaxed);
    entry_ = nullptr;
}

std::uint16_t OperationRecorder::place_of(const char* file) noexcept {
    KnownFile& known = known_[reinterpret_cast<std::uintptr_t>(file) / 16 % known_.size()];
    if (known.name == file) return known.place;
    const std::lock_guard lock(page_mutex);
    known = {file, find_or_add(page_, shortened(file))};
    return known.place;
}

}  // namespace ddp::contract
