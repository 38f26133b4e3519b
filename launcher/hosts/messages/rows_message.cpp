#include "launcher/hosts/messages/rows_message.hpp"

#include <algorithm>
#include <cmath>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr double parts_of_one = 1'000'000;  // of a rate or a share
constexpr double most_shares = 1e9;

std::int64_t in_parts(double value) {
    return std::llround(std::clamp(value, 0.0, most_shares) * parts_of_one);
}
double take_parts(MessageReader& in) {
    const std::int64_t parts = in.wide();
    if (parts < 0 || parts > in_parts(most_shares)) refuse_message("a share is none");
    return static_cast<double>(parts) / parts_of_one;
}

template <class Value, class Put>
void put_optional(MessageWriter& out, const std::optional<Value>& value, const Put& put) {
    out.flag(value.has_value());
    if (value) put(*value);
}
template <class Take>
auto take_optional(MessageReader& in, const Take& take) -> std::optional<decltype(take())> {
    if (!in.flag()) return std::nullopt;
    return take();
}

void put(MessageWriter& out, const RankRow& row) {
    const auto share = [&](double value) { out.number(in_parts(value)); };
    // A worker may have written anything.
    const auto time = [&](nanoseconds value) {
        out.number(std::clamp(std::int64_t{value.count()}, std::int64_t{0}, max_duration_ns));
    };
    out.number(row.rank).number(row.local_rank).number(std::int64_t{row.pid});
    out.words(row.state);
    put_optional(out, row.ended, [&](const ExitStatus& end) {
        out.number(end.code).number(end.signal).flag(end.core_dumped);
    });
    out.words(row.phase);
    out.flag(row.is_at_checkpoint).number(row.progress.step);
    share(row.progress.steps_per_second);
    out.number(row.progress.bytes);
    time(row.progress.exposed);
    out.words(row.call);
    put_optional(out, row.since_call, time);
    put_optional(out, row.share_in_calls, share);
    put_optional(out, row.use.cpu_time,
                 [&](milliseconds used) { time(nanoseconds(used.count())); });
    put_optional(out, row.use.cpu_share, share);
    put_optional(out, row.use.resident_bytes, [&](std::uint64_t bytes) { out.number(bytes); });
    out.words(row.waits_in);
    time(row.read_at.time_since_epoch());
}

RankRow take_row(MessageReader& in) {
    const auto share = [&] { return take_parts(in); };
    RankRow row;
    row.rank = in.number();
    row.local_rank = in.number();
    row.pid = in.number();
    row.state = in.words();
    row.ended = take_optional(in, [&] {
        ExitStatus end;
        end.code = in.number();
        end.signal = in.number();
        end.core_dumped = in.flag();
        return end;
    });
    row.phase = in.words();
    row.is_at_checkpoint = in.flag();
    row.progress.step = in.wide();
    row.progress.steps_per_second = share();
    row.progress.bytes = in.unsigned_wide();
    row.progress.exposed = in.duration();
    row.call = in.words();
    row.since_call = take_optional(in, [&] { return in.duration(); });
    row.share_in_calls = take_optional(in, share);
    row.use.cpu_time = take_optional(in, [&] { return milliseconds(in.duration().count()); });
    row.use.cpu_share = take_optional(in, share);
    row.use.resident_bytes = take_optional(in, [&] { return in.unsigned_wide(); });
    row.waits_in = in.words();
    row.read_at = RankRow::Time(in.duration());
    return row;
}

}  // namespace

void put_rows(MessageWriter& out, const std::vector<RankRow>& rows) {
    for (const RankRow& row : rows) {
        if (out.size() > most_list_bytes) break;
        out.flag(true);
        put(out, row);
    }
    out.flag(false);
}

std::vector<RankRow> take_rows(MessageReader& in) {
    std::vector<RankRow> rows;
    while (in.flag()) rows.push_back(take_row(in));
    return rows;
}

}  // namespace ddp::launcher
