// Written by hand, as there may be a million events.
#include "launcher/timeline/trace_text.hpp"

#include <nlohmann/json.hpp>

#include <set>

namespace ddp::launcher {
namespace {

using contract::Activity;
using nlohmann::json;

// Processes of one attempt and those of the next are told apart by it.
constexpr int most_ranks = 100'000;

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
    explicit Writer(const JobTimeline& timeline) : timeline_(timeline), began_(timeline.began()) {
        for (const std::string& name : timeline.names()) names_.push_back(line_of(name));
    }

    void add(int process, const TimelineItem& item) {
        begin_line();
        text_ += R"({"ph":"X","name":)" + names_[item.name] + R"(,"cat":")" + category(item.what) +
                 R"(","ts":)" + in_microseconds(item.started - began_) + R"(,"dur":)" +
                 in_microseconds(item.ended - item.started) + R"(,"pid":)" +
                 std::to_string(process) + R"(,"tid":)" + std::to_string(thread_of(item)) +
                 R"(,"args":{"number":)" + std::to_string(item.number) + "}}";
    }
    void describe(int process, int thread, const char* what, const json& args) {
        begin_line();
        text_ += line_of(
            {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", args}});
    }
    void mark(int process, std::int64_t time, const std::string& what) {
        begin_line();
        text_ += R"({"ph":"i","s":"p","name":)" + line_of(what) + R"(,"ts":)" +
                 in_microseconds(time - began_) + R"(,"pid":)" + std::to_string(process) +
                 R"(,"tid":0})";
    }
    std::string take() { return R"({"displayTimeUnit":"ms","traceEvents":[)" + text_ + "\n]}\n"; }

private:
    void begin_line() { text_ += text_.empty() ? "\n" : ",\n"; }

    const JobTimeline& timeline_;
    std::int64_t began_;
    std::vector<std::string> names_;
    std::string text_;
};

void add_rank(const RankTimeline& rank, int attempt, Writer& writer) {
    const int process = attempt * most_ranks + rank.rank;
    std::string name = "rank " + std::to_string(rank.rank);
    if (attempt > 0) name += ", attempt " + std::to_string(attempt + 1);
    writer.describe(process, 0, "process_name",
                    {{"name", name + " (pid " + std::to_string(rank.pid) + ")"}});
    writer.describe(process, 0, "process_sort_index", {{"sort_index", process}});
    std::set<int> threads;
    for (const TimelineItem& item : rank.items) threads.insert(thread_of(item));
    for (const int thread : threads) {
        writer.describe(process, thread, "thread_name", {{"name", thread_name(thread)}});
    }
    writer.mark(process, rank.started, "start");
    for (const TimelineItem& item : rank.items) writer.add(process, item);
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
