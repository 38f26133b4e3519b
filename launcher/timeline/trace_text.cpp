// Written by hand, as there may be a million events.
#include "launcher/timeline/trace_text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using contract::Activity;
using nlohmann::json;

// Processes of one attempt and those of the next are told apart by it.
constexpr std::int64_t most_ranks = 100'000;

const char* category(Activity what) {
    switch (what) {
        case Activity::collective:
            return "collective";
        case Activity::transfer:
            return "transfer";
        case Activity::gradients:
            return "wait";
        case Activity::step:
            return "step";
        case Activity::checkpoint:
            return "checkpoint";
    }
    return "";
}

constexpr int steps_thread = 1;
constexpr int waits_thread = 2;
constexpr int first_group_thread = 3;
// What overlaps, as on a GPU, is shown in further threads: one cannot do two things.
constexpr int threads_of_one = 1000;

int thread_of(const TimelineItem& item) {
    if (item.what == Activity::step) return steps_thread;
    if (item.what != Activity::collective) return waits_thread;
    return first_group_thread + static_cast<int>(item.group);
}

std::string thread_name(int thread) {
    if (thread == steps_thread) return "steps";
    if (thread == waits_thread) return "waits";
    return "group " + std::to_string(thread - first_group_thread + 1);
}

// Finds for each item a thread that is free then.
class Threads {
public:
    int take(const TimelineItem& item) {
        std::vector<std::int64_t>& free_at = free_at_[thread_of(item)];
        const auto found =
            std::ranges::find_if(free_at, [&](std::int64_t time) { return time <= item.started; });
        const auto index = found - free_at.begin();
        if (index == most) return number(thread_of(item), most - 1);
        if (found == free_at.end()) free_at.push_back(0);
        free_at[static_cast<std::size_t>(index)] = item.ended;
        return number(thread_of(item), index);
    }
    // Of those that were taken: numbers and names.
    std::vector<std::pair<int, std::string>> names() const {
        std::vector<std::pair<int, std::string>> all;
        for (const auto& [thread, free_at] : free_at_) {
            for (std::size_t i = 0; i < free_at.size(); ++i) {
                all.emplace_back(
                    number(thread, static_cast<std::ptrdiff_t>(i)),
                    thread_name(thread) + (i == 0 ? "" : " (" + std::to_string(i + 1) + ")"));
            }
        }
        return all;
    }

private:
    static constexpr std::ptrdiff_t most = 64;
    static int number(int thread, std::ptrdiff_t index) {
        return thread * threads_of_one + static_cast<int>(index);
    }

    std::map<int, std::vector<std::int64_t>> free_at_;
};

// "12.345": of nanoseconds, in microseconds.
std::string in_microseconds(std::int64_t nanoseconds) {
    const std::string part = std::to_string(1000 + nanoseconds % 1000);
    return std::to_string(nanoseconds / 1000) + "." + part.substr(1);
}

std::string line_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

class Writer {
public:
    explicit Writer(const JobTimeline& timeline) : began_(timeline.began()) {
        for (const std::string& name : timeline.names()) names_.push_back(line_of(name));
    }

    void add(std::int64_t process, int thread, const TimelineItem& item) {
        begin_line();
        text_ += R"({"ph":"X","name":)" + names_[item.name] + R"(,"cat":")" + category(item.what) +
                 (item.has_ended ? "" : ", did not end") + R"(","ts":)" +
                 in_microseconds(item.started - began_) + R"(,"dur":)" +
                 in_microseconds(item.ended - item.started) + R"(,"pid":)" +
                 std::to_string(process) + R"(,"tid":)" + std::to_string(thread) +
                 R"(,"args":{"number":)" + std::to_string(static_cast<std::int64_t>(item.number)) +
                 "}}";
    }
    void describe(std::int64_t process, int thread, const char* what, const json& args) {
        begin_line();
        text_ += line_of(
            {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", args}});
    }
    void mark(std::int64_t process, std::int64_t time, const std::string& what) {
        begin_line();
        text_ += R"({"ph":"i","s":"p","name":)" + line_of(what) + R"(,"ts":)" +
                 in_microseconds(time - began_) + R"(,"pid":)" + std::to_string(process) +
                 R"(,"tid":0})";
    }
    std::string take() {
        text_ += "\n]}\n";
        return std::move(text_);
    }

private:
    void begin_line() { text_ += std::exchange(is_first_, false) ? "\n" : ",\n"; }

    std::int64_t began_;
    std::vector<std::string> names_;
    std::string text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
    bool is_first_ = true;
};

void add_rank(const RankTimeline& rank, int attempt, Writer& writer) {
    const std::int64_t process = attempt * most_ranks + rank.rank;
    std::string name = "rank " + std::to_string(rank.rank);
    if (!rank.host.empty()) name += " on " + rank.host;
    if (attempt > 0) name += ", attempt " + std::to_string(attempt + 1);
    writer.describe(process, 0, "process_name",
                    {{"name", name + " (pid " + std::to_string(rank.pid) + ")"}});
    writer.describe(process, 0, "process_sort_index", {{"sort_index", process}});
    writer.mark(process, rank.started, "start");
    Threads threads;
    for (const TimelineItem& item : rank.items) writer.add(process, threads.take(item), item);
    for (const auto& [thread, name] : threads.names()) {
        writer.describe(process, thread, "thread_name", {{"name", name}});
    }
    writer.mark(process, rank.ended, rank.end);
}

}  // namespace

std::string trace_text(const JobTimeline& timeline) {
    Writer writer(timeline);
    for (const AttemptTimeline& attempt : timeline.attempts()) {
        for (const RankTimeline& rank : attempt.ranks) add_rank(rank, attempt.attempt, writer);
    }
    return writer.take();
}

}  // namespace ddp::launcher
