#include "contract/timeline.hpp"

#include "contract/rank_record.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

namespace ddp::contract {
namespace {

std::optional<TimedActivity> read_entry(const TimelineEntry& entry) {
    const std::uint64_t serial = entry.serial.load(std::memory_order_acquire);
    const auto what = enumerator(entry.what.load(relaxed), last_activity);
    const auto kind = enumerator(entry.kind.load(relaxed), last_collective);
    const auto dtype = enumerator(entry.dtype.load(relaxed), DType::boolean);
    const auto op = enumerator(entry.op.load(relaxed), ReduceOp::premul_sum);
    if (serial == 0 || !what || !kind || !dtype || !op) return std::nullopt;
    const bool flag = entry.flag.load(relaxed) != 0;
    const bool is_transfer = *what == Activity::transfer;
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
                                    .uneven = flag && !is_transfer,
                                    .source = entry.source.load(relaxed)},
                           .sends = flag && is_transfer,
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
    entry.flag.store(activity.call.uneven || activity.sends ? 1 : 0, relaxed);
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

Timeline::Contents Timeline::read() const {
    Contents contents;
    if (!is_on()) return contents;
    contents.added = head_->recorded.load(std::memory_order_acquire);
    const std::uint64_t kept = std::min<std::uint64_t>(contents.added, entries_.size());
    contents.kept.reserve(kept);
    for (std::uint64_t number = contents.added - kept; number < contents.added; ++number) {
        if (const auto one = read_entry(entries_[number % entries_.size()])) {
            contents.kept.push_back(*one);
        }
    }
    return contents;
}

std::string describe(const TimedActivity& activity, const ControlPage& page) {
    const auto place = [&] {
        const std::string file = file_at(page, activity.file);
        return file.empty() ? "" : " (" + file + ":" + std::to_string(activity.line) + ")";
    };
    switch (activity.what) {
        case Activity::collective: {
            std::string text = describe(activity.call);
            const std::size_t backward = text.rfind(" backward ");
            if (comes_from_reducer(activity.call.source) && backward != text.npos) {
                text.erase(backward, text.find(" of ", backward) + 3 - backward);
            }
            // A call of the library's names its source instead.
            return text + (activity.call.source == 0 ? place() : "");
        }
        case Activity::transfer:
            return (activity.sends ? "send of " : "recv of ") +
                   std::to_string(activity.call.elements) +
                   (activity.sends ? " bytes to rank " : " bytes from rank ") +
                   std::to_string(activity.call.root) + place();
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
