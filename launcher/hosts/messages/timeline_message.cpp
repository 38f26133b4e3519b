#include "launcher/hosts/messages/timeline_message.hpp"

#include <limits>

namespace ddp::launcher {
namespace {

// Since the worker's start; what is outside of its time is not its own.
void put_item(MessageWriter& out, const TimelineItem& item, std::int64_t began) {
    out.flag(true).small(static_cast<std::uint8_t>(item.what)).flag(item.has_ended);
    out.number(item.started - began).number(item.ended - item.started).number(item.number);
    out.number(std::int64_t{item.name}).number(std::int64_t{item.group});
}
TimelineItem take_item(MessageReader& in, const TimelinePart& part) {
    TimelineItem item;
    item.what = static_cast<contract::Activity>(
        in.small(static_cast<std::uint8_t>(contract::last_activity)));
    item.has_ended = in.flag();
    item.started = part.rank.started + in.duration().count();
    item.ended = item.started + in.duration().count();
    item.number = in.unsigned_wide();
    item.name = static_cast<std::uint32_t>(in.number());
    item.group = static_cast<std::uint32_t>(in.number());
    const bool has_group = item.what == contract::Activity::collective;
    if (item.name >= part.names.size() || (has_group && item.group >= part.groups.size())) {
        refuse_message("an activity has no name, or no group");
    }
    return item;
}

std::int64_t take_nanoseconds(MessageReader& in) {
    const std::int64_t time = in.wide();
    if (time < -max_duration_ns || time > max_duration_ns) refuse_message("a time is none");
    return time;
}

}  // namespace

void put_timeline(MessageWriter& out, const TimelinePart& part) {
    out.number(part.names.size());
    for (const std::string& name : part.names) out.words(name);
    out.number(part.groups.size());
    for (const TimelineGroup& group : part.groups) {
        out.number(std::int64_t{group.id}).number(group.size).flag(group.on_gpu);
    }
    const RankTimeline& rank = part.rank;
    out.number(rank.rank).number(std::int64_t{rank.pid});
    out.number(rank.started).number(rank.ended - rank.started);
    out.words(rank.end).flag(rank.has_joined).number(rank.lost);
    for (const TimelineItem& item : rank.items) put_item(out, item, rank.started);
    out.flag(false);
}

TimelinePart take_timeline(MessageReader& in) {
    TimelinePart part;
    const std::size_t names = in.count(JobTimeline::most_names);
    for (std::size_t i = 0; i < names; ++i) part.names.push_back(in.words());
    const std::size_t groups = in.count(JobTimeline::most_groups);
    for (std::size_t i = 0; i < groups; ++i) {
        const std::int64_t id = in.wide();
        if (id < 0 || id > std::numeric_limits<std::uint32_t>::max()) {
            refuse_message("a group is none");
        }
        part.groups.push_back(
            {.id = static_cast<std::uint32_t>(id), .size = in.number(), .on_gpu = in.flag()});
    }
    RankTimeline& rank = part.rank;
    rank.rank = in.number();
    rank.pid = in.number();
    rank.started = take_nanoseconds(in);
    rank.ended = rank.started + in.duration().count();
    rank.end = in.words();
    rank.has_joined = in.flag();
    rank.lost = in.unsigned_wide();
    while (in.flag()) rank.items.push_back(take_item(in, part));
    return part;
}

void shift_clock(TimelinePart& part, std::chrono::nanoseconds by) {
    part.rank.started += by.count();
    part.rank.ended += by.count();
    for (TimelineItem& item : part.rank.items) {
        item.started += by.count();
        item.ended += by.count();
    }
}

}  // namespace ddp::launcher
