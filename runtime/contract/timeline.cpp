#include "contract/timeline.hpp"

#include "contract/rank_record.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

namespace ddp::contract {
namespace {

constexpr std::uint16_t uneven_flag = 1;
constexpr std::uint16_t sends_flag = 2;
constexpr std::uint16_t failed_flag = 4;

// Nothing: another one's is there, or what makes no sense.
std::optional<TimedActivity> read_entry(const TimelineEntry& entry, std::uint64_t serial) {
    const auto what = enumerator(entry.what.load(relaxed), last_activity);
    const auto kind = enumerator(entry.kind.load(relaxed), last_collective);
    const auto dtype = enumerator(entry.dtype.load(relaxed), DType::boolean);
    const auto op = enumerator(entry.op.load(relaxed), ReduceOp::premul_sum);
    const std::uint16_t flags = entry.flags.load(relaxed);
    if (entry.serial.load(std::memory_order_acquire) != serial || !what || !kind || !dtype || !op)
        return std::nullopt;
    TimedActivity activity{.what = *what,
                           .started_ns = entry.started_ns.load(relaxed),
                           .ended_ns = entry.ended_ns.load(relaxed),
                           .number = entry.number.load(relaxed),
                           .group = entry.group.load(relaxed),
                           .call = {.kind = *kind,
                                    .dtype = *dtype,
                                    .op = *op,
                                    .root = entry.root.load(relaxed),
                                    .elements = entry.elements.load(relaxed),
                                    .uneven = (flags & uneven_flag) != 0,
                                    .source = entry.source.load(relaxed)},
                           .sends = (flags & sends_flag) != 0,
                           .failed = (flags & failed_flag) != 0,
                           .file = entry.file.load(relaxed),
                           .line = entry.line.load(relaxed)};
    if (activity.started_ns < 0 || activity.ended_ns < activity.started_ns) return std::nullopt;
    return activity;
}

}  // namespace

std::int64_t Timeline::now_ns() noexcept {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Timeline::add(const TimedActivity& activity) const noexcept {
    const std::uint64_t serial = head_->recorded.fetch_add(1, relaxed) + 1;
    TimelineEntry& entry = entries_[(serial - 1) % entries_.size()];
    entry.serial.store(0, relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.started_ns.store(activity.started_ns, relaxed);
    entry.ended_ns.store(activity.ended_ns, relaxed);
    entry.number.store(activity.number, relaxed);
    entry.elements.store(activity.call.elements, relaxed);
    entry.group.store(activity.group, relaxed);
    entry.source.store(activity.call.source, relaxed);
    entry.root.store(activity.call.root, relaxed);
    entry.line.store(activity.line, relaxed);
    entry.file.store(activity.file, relaxed);
    entry.what.store(static_cast<std::uint8_t>(activity.what), relaxed);
    entry.kind.store(static_cast<std::uint8_t>(activity.call.kind), relaxed);
    entry.dtype.store(static_cast<std::uint8_t>(activity.call.dtype), relaxed);
    entry.op.store(static_cast<std::uint8_t>(activity.call.op), relaxed);
    entry.flags.store(static_cast<std::uint16_t>((activity.call.uneven ? uneven_flag : 0) |
                                                 (activity.sends ? sends_flag : 0) |
                                                 (activity.failed ? failed_flag : 0)),
                      relaxed);
    entry.serial.store(serial, std::memory_order_release);
}

void Timeline::end_step(std::int64_t step) const noexcept {
    if (!is_on()) return;
    const std::int64_t now = now_ns();
    const std::int64_t began = head_->step_ended_ns.exchange(now, relaxed);
    if (began == 0) return;
    add({.what = Activity::step,
         .started_ns = std::min(began, now),
         .ended_ns = now,
         .number = static_cast<std::uint64_t>(step)});
}

void Timeline::begin_program() const noexcept {
    if (is_on()) head_->step_ended_ns.store(0, relaxed);
}

Timeline::Contents Timeline::read() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 50;  // nobody adds as many
    Contents contents;
    if (!is_on()) return contents;
    const std::uint64_t added = std::min(head_->recorded.load(std::memory_order_acquire), most);
    const std::uint64_t kept = std::min<std::uint64_t>(added, entries_.size());
    contents.lost = added - kept;
    contents.kept.reserve(kept);
    for (std::uint64_t number = contents.lost; number < added; ++number) {
        if (const auto one = read_entry(entries_[number % entries_.size()], number + 1)) {
            contents.kept.push_back(*one);
        }
    }
    return contents;
}

std::string describe(const TimedActivity& activity, const ControlPage& page) {
    const auto file = [&] { return file_at(page, activity.file); };
    switch (activity.what) {
        case Activity::collective:
            return describe(
                OperationRecord{.call = activity.call, .file = file(), .line = activity.line},
                Naming::all_alike);
        case Activity::transfer:
            return describe(TransferRecord{.sends = activity.sends,
                                           .peer = activity.call.root,
                                           .bytes = activity.call.elements,
                                           .file = file(),
                                           .line = activity.line});
        case Activity::gradients:
            return "wait for gradients";
        case Activity::step:
            return "step";
        case Activity::checkpoint:
            return "checkpoint";
    }
    return {};
}

}  // namespace ddp::contract
