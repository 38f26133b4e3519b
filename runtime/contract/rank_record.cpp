#include "contract/rank_record.hpp"

#include "base/printable.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ddp::contract {
namespace {

template <class T>
T value_of(const std::atomic<T>& field) {
    return field.load(std::memory_order_relaxed);
}

constexpr std::uint32_t most_ranks = 1U << 24;

using Time = OperationRecord::Time;

// Not in the future, and nothing that overflows in a difference.
Time time_of(std::int64_t nanoseconds, Time now) {
    const std::chrono::nanoseconds latest(now.time_since_epoch());
    return OperationRecord::Time(
        std::clamp(std::chrono::nanoseconds(nanoseconds), std::chrono::nanoseconds(0), latest));
}

std::optional<OperationRecord> read(const OperationEntry& entry, const ControlPage& page,
                                    Time now) {
    const std::uint64_t serial = entry.serial.load(std::memory_order_acquire);
    const auto kind = enumerator(value_of(entry.kind), last_collective);
    const auto dtype = enumerator(value_of(entry.dtype), DType::boolean);
    const auto op = enumerator(value_of(entry.op), ReduceOp::premul_sum);
    if (serial == 0 || !kind || !dtype || !op) return std::nullopt;
    OperationRecord record{.serial = serial,
                           .group = value_of(entry.group),
                           .sequence = value_of(entry.sequence),
                           .call = {.kind = *kind,
                                    .dtype = *dtype,
                                    .op = *op,
                                    .root = value_of(entry.root),
                                    .elements = value_of(entry.elements),
                                    .uneven = value_of(entry.uneven) != 0,
                                    .source = value_of(entry.source)},
                           .file = file_at(page, value_of(entry.file)),
                           .line = value_of(entry.line),
                           .started = time_of(value_of(entry.started_ns), now)};
    const std::int64_t ended = value_of(entry.ended_ns);
    if (ended != 0) record.ended = time_of(ended, now);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (value_of(entry.serial) != serial) return std::nullopt;
    return record;
}

std::optional<TransferRecord> read(const TransferEntry& entry, const ControlPage& page, Time now) {
    const std::int64_t since = entry.since_ns.load(std::memory_order_acquire);
    if (since == 0) return std::nullopt;
    return TransferRecord{.sends = value_of(entry.sends) != 0,
                          .peer = value_of(entry.peer),
                          .bytes = value_of(entry.bytes),
                          .file = file_at(page, value_of(entry.file)),
                          .line = value_of(entry.line),
                          .since = time_of(since, now)};
}

std::optional<GroupRecord> read(const GroupEntry& entry) {
    const std::uint32_t id = entry.id.load(std::memory_order_acquire);
    const std::uint32_t size = value_of(entry.size);
    // First the later one, so that what runs is never taken for more than one.
    const std::uint64_t ended = entry.ended.load(std::memory_order_acquire);
    const std::uint64_t started = value_of(entry.started);
    if (id == 0 || size == 0 || size > most_ranks || started < ended) return std::nullopt;
    return GroupRecord{
        .id = id,
        .size = static_cast<int>(size),
        .started = started,
        .ended = ended,
        .end = static_cast<GroupEnd>(std::min(value_of(entry.end), std::uint32_t{2})),
        .on_gpu = value_of(entry.on_gpu) != 0};
}

}  // namespace

std::string file_at(const ControlPage& page, std::size_t place) {
    if (place >= sizeof page.files) return {};
    // A copy, as it may change under us.
    char name[128];
    const std::size_t most = std::min(sizeof name, sizeof page.files - place);
    std::memcpy(name, page.files + place, most);
    const std::string_view path(name, ::strnlen(name, most));
    return base::printable(path.substr(path.rfind('/') + 1));
}

std::string describe(const OperationRecord& operation, Naming naming) {
    std::string text = describe(operation.call, naming);
    if (naming == Naming::one_call) text += ", operation " + std::to_string(operation.sequence);
    // A call of the library's names its source instead.
    if (operation.call.source != 0 || operation.file.empty()) return text;
    return text + " (" + operation.file + ":" + std::to_string(operation.line) + ")";
}

std::string describe(const TransferRecord& transfer) {
    const std::string place =
        transfer.file.empty() ? ""
                              : " (" + transfer.file + ":" + std::to_string(transfer.line) + ")";
    return (transfer.sends ? "send of " : "recv of ") + std::to_string(transfer.bytes) +
           (transfer.sends ? " bytes to rank " : " bytes from rank ") +
           std::to_string(transfer.peer) + place;
}

const GroupRecord* RankRecord::find_group(std::uint32_t id) const {
    const auto found = std::ranges::find(groups, id, &GroupRecord::id);
    return found != groups.end() ? &*found : nullptr;
}

const OperationRecord* RankRecord::find_operation(std::uint32_t group,
                                                  std::uint64_t sequence) const {
    const auto found = std::ranges::find_if(operations, [&](const OperationRecord& operation) {
        return operation.group == group && operation.sequence == sequence;
    });
    return found != operations.end() ? &*found : nullptr;
}

std::string describe(const LastCall& call) {
    return (call.is_in ? "in " : "after ") + describe(*call.operation);
}

std::optional<LastCall> RankRecord::last_call() const {
    if (operations.empty()) return std::nullopt;
    for (const GroupRecord& group : groups) {
        const OperationRecord* const running =
            group.started > group.ended ? find_operation(group.id, group.waits_in()) : nullptr;
        if (running != nullptr) return LastCall{running, true};
    }
    return LastCall{&operations.back(), false};
}

Progress read_progress(const ControlPage& page) {
    constexpr double most_steps_per_second = 1e9;
    Progress progress{.step = value_of(page.step),
                      .steps_per_second = value_of(page.steps_per_second),
                      .bytes = value_of(page.unrecorded_bytes),
                      .exposed = std::chrono::nanoseconds(value_of(page.exposed_ns))};
    for (const GroupEntry& group : page.groups) progress.bytes += value_of(group.bytes);
    const bool is_plausible = progress.step >= 0 && progress.steps_per_second >= 0 &&
                              progress.exposed.count() >= 0 &&
                              progress.steps_per_second <= most_steps_per_second;  // no NaN
    return is_plausible ? progress : Progress{};
}

RankRecord read_page(const ControlPage& page) {
    const Time now = std::chrono::steady_clock::now();
    RankRecord record{.pid = page.pid.load(std::memory_order_acquire),
                      .step = read_progress(page).step,
                      .joined = time_of(value_of(page.joined_ns), now)};
    const std::uint32_t phase = value_of(page.phase);
    if (phase <= static_cast<std::uint32_t>(Phase::left)) record.phase = static_cast<Phase>(phase);
    record.is_at_checkpoint = value_of(page.checkpoints) > 0;
    record.waits_unrecorded = value_of(page.in_unrecorded) > 0;
    for (std::size_t i = 0; i < recorded_groups; ++i) {
        auto group = read(page.groups[i]);
        if (!group) continue;
        if (group->end == GroupEnd::none) group->transfer = read(page.transfers[i], page, now);
        record.groups.push_back(std::move(*group));
    }
    for (const OperationEntry& entry : page.operations) {
        if (value_of(entry.serial) == 0) continue;
        if (auto operation = read(entry, page, now))
            record.operations.push_back(std::move(*operation));
    }
    std::ranges::sort(record.operations, {}, &OperationRecord::serial);
    return record;
}

}  // namespace ddp::contract
