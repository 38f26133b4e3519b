#include "launcher/hosts/messages/sighting_bytes.hpp"

#include "base/printable.hpp"
#include "launcher/hosts/messages/messages.hpp"

#include <algorithm>
#include <cmath>

namespace ddp::launcher {
namespace {

using contract::GroupEnd;
using contract::GroupRecord;
using contract::OperationRecord;
using contract::RankRecord;
using contract::TransferRecord;
using Time = RankState::Time;
using std::chrono::nanoseconds;

constexpr std::size_t last_operations = 8;
constexpr std::size_t most_operations = last_operations + contract::recorded_groups;
// 36 years.
constexpr std::int64_t latest = std::int64_t{1} << 60;
constexpr std::int64_t not_there = -1;
constexpr double parts_of_a_processor = 1000;
constexpr double most_processors = 1e6;
constexpr int parts_of_the_time = 1'000'000;
constexpr std::size_t most_quotas = 8;

void put_time(MessageWriter& out, Time time) { out.number(clock_ns_of(time)); }
Time take_time(MessageReader& in) {
    const std::int64_t value = in.wide();
    if (value < -latest || value > latest) refuse_message("a time is none");
    return Time(nanoseconds(value));
}
void put_optional_time(MessageWriter& out, const std::optional<Time>& time) {
    out.flag(time.has_value());
    if (time) put_time(out, *time);
}
std::optional<Time> take_optional_time(MessageReader& in) {
    if (!in.flag()) return std::nullopt;
    return take_time(in);
}

template <class Enum>
Enum take_enum(MessageReader& in, Enum last) {
    return static_cast<Enum>(in.small(static_cast<std::uint8_t>(last)));
}
template <class Enum>
void put_enum(MessageWriter& out, Enum value) {
    out.small(static_cast<std::uint8_t>(value));
}
std::uint32_t take_32(MessageReader& in) {
    const std::int64_t value = in.wide();
    if (value < 0 || value > std::numeric_limits<std::uint32_t>::max()) {
        refuse_message("a number is outside");
    }
    return static_cast<std::uint32_t>(value);
}

void put(MessageWriter& out, const OperationRecord& one) {
    out.number(one.serial).number(std::int64_t{one.group}).number(one.sequence);
    put_enum(out, one.call.kind);
    put_enum(out, one.call.dtype);
    put_enum(out, one.call.op);
    out.number(std::int64_t{one.call.root}).number(one.call.elements).flag(one.call.uneven);
    out.number(std::int64_t{one.call.source}).text(one.file).number(std::int64_t{one.line});
    put_time(out, one.started);
    put_optional_time(out, one.ended);
}
OperationRecord take_operation(MessageReader& in) {
    OperationRecord one;
    one.serial = in.unsigned_wide();
    one.group = take_32(in);
    one.sequence = in.unsigned_wide();
    one.call.kind = take_enum(in, contract::last_collective);
    one.call.dtype = take_enum(in, DType::boolean);
    one.call.op = take_enum(in, ReduceOp::premul_sum);
    one.call.root = in.number(std::numeric_limits<int>::min());
    one.call.elements = in.unsigned_wide();
    one.call.uneven = in.flag();
    one.call.source = take_32(in);
    one.file = in.words();
    one.line = take_32(in);
    one.started = take_time(in);
    one.ended = take_optional_time(in);
    return one;
}

void put(MessageWriter& out, const GroupRecord& group) {
    out.number(std::int64_t{group.id}).number(group.size);
    out.number(group.started).number(group.ended);
    put_enum(out, group.end);
    out.flag(group.on_gpu).flag(group.transfer.has_value());
    if (!group.transfer) return;
    const TransferRecord& transfer = *group.transfer;
    out.flag(transfer.sends).number(transfer.peer).number(transfer.bytes);
    out.text(transfer.file).number(std::int64_t{transfer.line});
    put_time(out, transfer.since);
}
GroupRecord take_group(MessageReader& in) {
    GroupRecord group;
    group.id = take_32(in);
    group.size = in.number(1);
    group.started = in.unsigned_wide();
    group.ended = in.unsigned_wide();
    if (group.started < group.ended) refuse_message("more calls have ended than have begun");
    group.end = take_enum(in, GroupEnd::failed);
    group.on_gpu = in.flag();
    if (!in.flag()) return group;
    TransferRecord& transfer = group.transfer.emplace();
    transfer.sends = in.flag();
    transfer.peer = in.number(std::numeric_limits<int>::min());
    transfer.bytes = in.unsigned_wide();
    transfer.file = in.words();
    transfer.line = take_32(in);
    transfer.since = take_time(in);
    return group;
}

// The last ones, and before them those that the rank waits in.
std::vector<const OperationRecord*> operations_to_tell(const RankRecord& record) {
    std::vector<const OperationRecord*> told;
    const std::size_t count = record.operations.size();
    for (std::size_t i = 0; i < count; ++i) {
        const OperationRecord& one = record.operations[i];
        const GroupRecord* const group = record.find_group(one.group);
        const bool is_waited_in =
            group != nullptr && group->is_waiting() && group->waits_in() == one.sequence;
        if (i + last_operations >= count || is_waited_in) told.push_back(&one);
    }
    if (told.size() > most_operations) told.erase(told.begin(), told.end() - most_operations);
    return told;
}

void put(MessageWriter& out, const RankState& rank) {
    const RankRecord& record = rank.record;
    out.number(rank.rank).flag(rank.has_ended);
    put_time(out, rank.started);
    out.number(std::max(0, record.pid));  // whatever its page says
    put_enum(out, record.phase);
    out.flag(record.is_at_checkpoint).flag(record.waits_unrecorded).number(record.step);
    put_time(out, record.joined);
    put_process(out, rank.process);
    put_optional_time(out, rank.held_since);
    const double share =
        std::clamp(rank.cpu_share.value_or(0), 0.0, most_processors) * parts_of_a_processor;
    out.number(rank.cpu_share ? std::int64_t{std::llround(share)} : not_there);
    out.number(record.groups.size());
    for (const GroupRecord& group : record.groups) put(out, group);
    const std::vector<const OperationRecord*> told = operations_to_tell(record);
    out.number(told.size());
    for (const OperationRecord* const one : told) put(out, *one);
}
RankState take_rank(MessageReader& in) {
    RankState rank;
    rank.rank = in.number();
    rank.has_ended = in.flag();
    rank.started = take_time(in);
    rank.record.pid = in.number();
    rank.record.phase = take_enum(in, contract::Phase::left);
    rank.record.is_at_checkpoint = in.flag();
    rank.record.waits_unrecorded = in.flag();
    rank.record.step = in.wide();
    rank.record.joined = take_time(in);
    rank.process = take_process(in);
    rank.held_since = take_optional_time(in);
    const std::int64_t share = in.wide();
    const bool is_one =
        share >= not_there && static_cast<double>(share) <= most_processors * parts_of_a_processor;
    if (!is_one) refuse_message("a number is outside");
    if (share >= 0) rank.cpu_share = static_cast<double>(share) / parts_of_a_processor;
    const std::size_t groups = in.count(contract::recorded_groups);
    for (std::size_t i = 0; i < groups; ++i) rank.record.groups.push_back(take_group(in));
    const std::size_t operations = in.count(most_operations);
    for (std::size_t i = 0; i < operations; ++i) {
        rank.record.operations.push_back(take_operation(in));
    }
    return rank;
}

void put(MessageWriter& out, const RankPace& pace) {
    out.number(pace.rank).number(std::max(0, pace.pid));  // whatever its page says
    out.number(std::int64_t{std::llround(std::clamp(pace.in_calls, 0.0, 1.0) * parts_of_the_time)});
    const std::size_t groups = std::min(pace.groups.size(), contract::recorded_groups);
    out.number(groups);
    for (std::size_t i = 0; i < groups; ++i) out.number(std::int64_t{pace.groups[i]});
    out.flag(pace.use.has_value());
    if (pace.use) put_use(out, *pace.use);
}
RankPace take_pace(MessageReader& in) {
    RankPace pace;
    pace.rank = in.number();
    pace.pid = in.number();
    const std::int64_t parts = in.wide();
    if (parts < 0 || parts > parts_of_the_time) refuse_message("a number is outside");
    pace.in_calls = static_cast<double>(parts) / parts_of_the_time;
    const std::size_t groups = in.count(contract::recorded_groups);
    for (std::size_t i = 0; i < groups; ++i) pace.groups.push_back(take_32(in));
    if (in.flag()) pace.use = take_use(in);
    return pace;
}

}  // namespace

void put_use(MessageWriter& out, const ProcessUse& use) {
    put_time(out, use.at);
    out.number(std::min<std::int64_t>(use.cpu.count(), max_duration_ns));
    out.number(use.waited_for_processor ? std::int64_t{use.waited_for_processor->count()}
                                        : not_there);
    const std::size_t quotas = std::min(use.quotas.size(), most_quotas);
    out.number(quotas);
    for (std::size_t i = 0; i < quotas; ++i) {
        const CpuQuota& one = use.quotas[i];
        out.words(one.folder).number(one.periods).number(one.used_up);
    }
    out.number(use.major_faults).number(use.swapped_bytes);
    out.words(use.processors);
}

ProcessUse take_use(MessageReader& in) {
    ProcessUse use;
    use.at = take_time(in);
    use.cpu = in.duration();
    const std::int64_t waited = in.wide();
    if (waited < not_there || waited > latest) refuse_message("a duration is none");
    if (waited >= 0) use.waited_for_processor = nanoseconds(waited);
    const std::size_t quotas = in.count(most_quotas);
    for (std::size_t i = 0; i < quotas; ++i) {
        CpuQuota& one = use.quotas.emplace_back();
        one.folder = in.words();
        one.periods = in.unsigned_wide();
        one.used_up = in.unsigned_wide();
    }
    use.major_faults = in.unsigned_wide();
    use.swapped_bytes = in.unsigned_wide();
    use.processors = in.words();
    return use;
}

void put_process(MessageWriter& out, const ProcessState& process) {
    out.number(process.pid).small(static_cast<std::uint8_t>(process.state));
    out.number(process.tracer).flag(process.is_frozen).words(process.waits_in);
}

ProcessState take_process(MessageReader& in) {
    ProcessState process;
    process.pid = in.number();
    process.state = static_cast<char>(in.small(127));
    process.tracer = in.number();
    process.is_frozen = in.flag();
    process.waits_in = in.words();
    return process;
}

void put_paces(MessageWriter& out, const Paces& paces) {
    out.number(std::int64_t{paces.time.count()}).flag(paces.tcp.has_value());
    if (paces.tcp) {
        out.number(paces.tcp->sent).number(paces.tcp->sent_again);
        out.number(std::int64_t{paces.tcp->read.count()});
    }
    for (const RankPace& pace : paces.ranks) {
        if (out.size() >= most_list_bytes) break;
        out.flag(true);
        put(out, pace);
    }
    out.flag(false);
}

Paces take_paces(MessageReader& in) {
    Paces paces;
    paces.time = in.duration();
    if (in.flag()) {
        paces.tcp.emplace();
        paces.tcp->sent = in.unsigned_wide();
        paces.tcp->sent_again = in.unsigned_wide();
        paces.tcp->read = in.duration();
    }
    int last = -1;
    while (in.flag()) {
        paces.ranks.push_back(take_pace(in));
        if (paces.ranks.back().rank <= last) refuse_message("ranks are not in their order");
        last = paces.ranks.back().rank;
    }
    return paces;
}

void put_sighting(MessageWriter& out, const Sighting& seen) {
    out.flag(seen.is_alarm).flag(seen.is_held_for_debugger);
    const std::size_t usual = std::min(seen.usual.size(), most_calls_asked);
    out.number(usual);
    for (std::size_t i = 0; i < usual; ++i) {
        const UsualTime& one = seen.usual[i];
        out.number(one.call).number(std::int64_t{one.patience.count()});
        out.number(std::int64_t{one.before.count()}).flag(one.is_taught);
    }
    for (const RankState& rank : seen.ranks) {
        if (out.size() >= most_list_bytes) break;
        out.flag(true);
        put(out, rank);
    }
    out.flag(false);
}

Sighting take_sighting(MessageReader& in) {
    Sighting seen;
    seen.is_alarm = in.flag();
    seen.is_held_for_debugger = in.flag();
    const std::size_t usual = in.count(most_calls_asked);
    for (std::size_t i = 0; i < usual; ++i) {
        UsualTime& one = seen.usual.emplace_back();
        one.call = in.unsigned_wide();
        one.patience = in.duration();
        one.before = in.duration();
        one.is_taught = in.flag();
    }
    int last = -1;
    while (in.flag()) {
        seen.ranks.push_back(take_rank(in));
        if (seen.ranks.back().rank <= last) refuse_message("ranks are not in their order");
        last = seen.ranks.back().rank;
    }
    return seen;
}

void shift_clock(Sighting& seen, nanoseconds by) {
    for (RankState& rank : seen.ranks) {
        rank.started += by;
        rank.record.joined += by;
        if (rank.held_since) *rank.held_since += by;
        for (GroupRecord& group : rank.record.groups) {
            if (group.transfer) group.transfer->since += by;
        }
        for (OperationRecord& one : rank.record.operations) {
            one.started += by;
            if (one.ended) *one.ended += by;
        }
    }
}

}  // namespace ddp::launcher
