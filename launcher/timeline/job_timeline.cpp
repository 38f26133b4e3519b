#include "launcher/timeline/job_timeline.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>
#include <utility>

namespace ddp::launcher {
namespace {

using contract::TimedActivity;

constexpr std::size_t least_entries = 1024;
constexpr std::size_t most_entries = std::size_t{1} << 17;

std::int64_t in_nanoseconds(Worker::Clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

// What has the same name on a page.
auto key_of(const TimedActivity& one) {
    return std::tuple(one.what, one.call.kind, one.call.dtype, one.call.op, one.call.root,
                      one.call.elements, one.call.uneven,
                      contract::without_backward(one.call.source), one.sends, one.file, one.line);
}

// Cuts a rank's timeline into parts.
class PartMaker {
public:
    PartMaker(const JobTimeline& whole, int attempt, RankTimeline rank, std::size_t most_items)
        : whole_(whole),
          most_items_(most_items),
          bare_{.attempt = attempt, .rank = std::move(rank)} {
        begin();
    }

    void add(TimelineItem item) {
        if (parts_.back().rank.items.size() == most_items_ || name_bytes_ > most_name_bytes)
            begin();
        TimelinePart& part = parts_.back();
        const auto [name, is_new_name] = names_.try_emplace(item.name, part.names.size());
        if (is_new_name) {
            part.names.push_back(whole_.names()[item.name]);
            name_bytes_ += part.names.back().size();
        }
        item.name = static_cast<std::uint32_t>(name->second);
        if (item.what == contract::Activity::collective) {
            const auto [group, is_new] = groups_.try_emplace(item.group, part.groups.size());
            if (is_new) part.groups.push_back(whole_.groups()[item.group]);
            item.group = static_cast<std::uint32_t>(group->second);
        }
        part.rank.items.push_back(item);
    }
    std::vector<TimelinePart> take() { return std::move(parts_); }

private:
    static constexpr std::size_t most_name_bytes = std::size_t{1} << 20;

    void begin() {
        parts_.push_back(bare_);
        names_.clear();
        groups_.clear();
        name_bytes_ = 0;
    }

    const JobTimeline& whole_;
    std::size_t most_items_;
    TimelinePart bare_;
    std::vector<TimelinePart> parts_;
    std::map<std::uint32_t, std::size_t> names_;  // in the last part, by their places in the whole
    std::map<std::uint32_t, std::size_t> groups_;
    std::size_t name_bytes_ = 0;
};

std::size_t size_of(const AttemptTimeline& attempt) {
    std::size_t items = 0;
    for (const RankTimeline& rank : attempt.ranks) items += rank.items.size();
    return items;
}

}  // namespace

std::size_t JobTimeline::entries_for(int workers) {
    const auto ranks = static_cast<std::size_t>(std::max(workers, 1));
    return std::clamp(most_activities / ranks, least_entries, most_entries);
}

void JobTimeline::begin(int attempt) {
    forget_what_is_too_much();
    attempts_.push_back({.attempt = attempt});
    items_of_last_ = 0;
}

void JobTimeline::add(TimelinePart part) {
    if (attempts_.empty() || attempts_.back().attempt != part.attempt) return;
    std::vector<RankTimeline>& ranks = attempts_.back().ranks;
    auto known = std::ranges::lower_bound(ranks, part.rank.rank, {}, &RankTimeline::rank);
    const std::vector<TimelineItem> items = std::move(part.rank.items);
    if (known == ranks.end() || known->rank != part.rank.rank) {
        part.rank.items = {};
        known = ranks.insert(known, std::move(part.rank));
    }
    std::vector<std::uint32_t> names;
    for (const std::string& text : part.names) names.push_back(name(text));
    std::vector<std::uint32_t> groups;
    for (const TimelineGroup& one : part.groups) {
        groups.push_back(group(one.id));
        if (TimelineGroup& here = groups_[groups.back()]; here.id == one.id) here = one;
    }
    for (TimelineItem item : items) {
        if (known->items.size() == most_entries || items_of_last_ == 2 * most_activities) {
            ++known->lost;
            continue;
        }
        ++items_of_last_;
        item.name = names[item.name];
        if (item.what == contract::Activity::collective) item.group = groups[item.group];
        known->items.push_back(item);
    }
}

void JobTimeline::set_text(std::string text) {
    if (attempts_.empty()) return;
    attempts_.back().text = std::move(text);
    forget_what_is_too_much();
}

// Of each rank the last ones, as many as there would be of a job of these ranks alone.
std::vector<TimelinePart> JobTimeline::parts(std::size_t most_items) const {
    std::vector<TimelinePart> parts;
    if (attempts_.empty()) return parts;
    const AttemptTimeline& attempt = attempts_.back();
    const std::size_t most = entries_for(static_cast<int>(attempt.ranks.size()));
    for (const RankTimeline& rank : attempt.ranks) {
        RankTimeline bare = rank;
        bare.items = {};
        const std::size_t left_out = rank.items.size() - std::min(most, rank.items.size());
        bare.lost += left_out;
        PartMaker maker(*this, attempt.attempt, std::move(bare), most_items);
        for (std::size_t i = left_out; i < rank.items.size(); ++i) maker.add(rank.items[i]);
        for (TimelinePart& part : maker.take()) parts.push_back(std::move(part));
    }
    return parts;
}

void JobTimeline::note(int attempt, const contract::ControlRegion& pages,
                       std::span<const Worker> workers, int first_rank, std::string text) {
    AttemptTimeline& noted =
        attempts_.emplace_back(AttemptTimeline{.attempt = attempt, .text = std::move(text)});
    for (const Worker& worker : workers) {
        const auto ended = worker.ended ? worker.ended_at : Worker::Clock::now();
        RankTimeline rank{
            .rank = first_rank + worker.local_rank,
            .pid = worker.process.pid(),
            .started = in_nanoseconds(worker.started_at),
            .ended = in_nanoseconds(ended),
            .end = worker.ended ? to_string(*worker.ended) : "left to the sweep",
            .has_joined = pages.page(worker.local_rank).pid.load(contract::relaxed) != 0};
        note_rank(pages, worker.local_rank, rank);
        noted.ranks.push_back(std::move(rank));
    }
    forget_what_is_too_much();
}

// What is not of the time in which the worker ran is not its own.
void JobTimeline::note_rank(const contract::ControlRegion& pages, int local_rank,
                            RankTimeline& rank) {
    const contract::ControlPage& page = pages.page(local_rank);
    const contract::RankRecord record = contract::read_page(page);
    note_groups(record);
    const contract::Timeline::Contents contents = pages.timeline(local_rank).read();
    std::map<decltype(key_of(TimedActivity{})), std::uint32_t> known;
    rank.items.reserve(contents.kept.size());
    for (const TimedActivity& one : contents.kept) {
        if (one.started_ns < rank.started || one.ended_ns > rank.ended) continue;
        const auto [at, is_new] = known.try_emplace(key_of(one), 0U);
        if (is_new) at->second = name(contract::describe(one, page));
        const bool has_group = one.what == contract::Activity::collective;
        rank.items.push_back({.started = one.started_ns,
                              .ended = one.ended_ns,
                              .number = one.number,
                              .name = at->second,
                              .group = has_group ? group(one.group) : 0,
                              .what = one.what,
                              .has_ended = !one.failed});
    }
    note_unfinished(record, rank);
    std::ranges::stable_sort(rank.items, {}, &TimelineItem::started);
    rank.lost = contents.lost;
}

void JobTimeline::note_groups(const contract::RankRecord& record) {
    for (const contract::GroupRecord& one : record.groups) {
        TimelineGroup& known = groups_[group(one.id)];
        if (known.id == one.id) known = {one.id, one.size, one.on_gpu};
    }
}

// What the rank was in when it ended; the page's times are older by a tick of the kernel's.
void JobTimeline::note_unfinished(const contract::RankRecord& record, RankTimeline& rank) {
    const auto add = [&](TimelineItem item, Worker::Clock::time_point since,
                         const std::string& text) {
        item.started = std::max(in_nanoseconds(since), rank.started);
        for (const TimelineItem& other : rank.items) {
            const bool is_of_same = other.what == item.what && other.group == item.group;
            if (is_of_same) item.started = std::max(item.started, other.ended);
        }
        if (item.started > rank.ended) return;
        item.ended = rank.ended;
        item.name = name(text);
        item.has_ended = false;
        rank.items.push_back(item);
    };
    for (const contract::GroupRecord& one : record.groups) {
        if (one.end != contract::GroupEnd::none) continue;
        const auto* const operation =
            one.is_waiting() ? record.find_operation(one.id, one.waits_in()) : nullptr;
        if (operation != nullptr) {
            add({.number = operation->sequence,
                 .group = group(one.id),
                 .what = contract::Activity::collective},
                operation->started, describe(*operation, contract::Naming::all_alike));
        }
        if (one.transfer) {
            add({.what = contract::Activity::transfer}, one.transfer->since,
                describe(*one.transfer));
        }
    }
}

std::uint32_t JobTimeline::name(const std::string& text) {
    const auto found = index_of_name_.find(text);
    if (found != index_of_name_.end()) return found->second;
    if (names_.size() == most_names) return static_cast<std::uint32_t>(most_names - 1);
    names_.push_back(names_.size() + 1 == most_names ? "one of many others" : text);
    const auto index = static_cast<std::uint32_t>(names_.size() - 1);
    index_of_name_.emplace(text, index);
    return index;
}

std::uint32_t JobTimeline::group(std::uint32_t id) {
    const auto found = index_of_group_.find(id);
    if (found != index_of_group_.end()) return found->second;
    if (groups_.size() == most_groups) return static_cast<std::uint32_t>(most_groups - 1);
    const bool is_last = groups_.size() + 1 == most_groups;
    groups_.push_back({.id = is_last ? 0 : id});
    const auto index = static_cast<std::uint32_t>(groups_.size() - 1);
    index_of_group_.emplace(id, index);
    return index;
}

void JobTimeline::forget_what_is_too_much() {
    if (attempts_.size() > most_attempts) attempts_.erase(attempts_.begin());
    std::size_t kept = 0;
    for (auto attempt = attempts_.rbegin(); attempt != attempts_.rend(); ++attempt) {
        kept += size_of(*attempt);
        if (kept <= most_ || attempt == attempts_.rbegin()) continue;
        for (RankTimeline& rank : attempt->ranks) {
            rank.lost += rank.items.size();
            rank.items = {};
        }
    }
}

std::int64_t JobTimeline::began() const {
    std::int64_t first = 0;
    for (const AttemptTimeline& attempt : attempts_) {
        for (const RankTimeline& rank : attempt.ranks) {
            if (first == 0 || rank.started < first) first = rank.started;
        }
    }
    return first;
}

}  // namespace ddp::launcher
