#include "launcher/hosts/messages/silent_message.hpp"

#include "launcher/hosts/messages/sighting_bytes.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

constexpr int most_looks = 1'000;  // since the last message
constexpr std::size_t most_told_threads = 2 * most_silent_ranks;

void put(MessageWriter& out, const ThreadRuns& runs) {
    out.number(runs.switches).number(runs.sleeps).number(std::int64_t{runs.cpu.count()});
}
ThreadRuns take_runs(MessageReader& in) {
    ThreadRuns runs;
    runs.switches = in.unsigned_wide();
    runs.sleeps = in.unsigned_wide();
    runs.cpu = in.duration();
    return runs;
}

void put(MessageWriter& out, const RankReading& one) {
    out.number(one.rank).number(std::int64_t{one.pid});
    out.flag(one.is_whole).flag(one.in_python).words(one.problem).flag(one.call.has_value());
    if (one.call) {
        out.words(one.call->name).words(one.call->place).number(std::int64_t{one.call->tid});
        out.flag(one.call->on_gpu);
    }
    out.number(clock_ns_of(one.at)).words(one.own_frame);
    put_process(out, one.process);
    out.number(std::int64_t{one.process.cpu_time.count()});
    out.flag(one.runs.has_value());
    if (one.runs) put(out, *one.runs);
}
RankReading take_reading(MessageReader& in) {
    RankReading one;
    one.rank = in.number();
    one.pid = in.number();
    one.is_whole = in.flag();
    one.in_python = in.flag();
    one.problem = in.words();
    if (in.flag()) {
        one.call.emplace();
        one.call->name = in.words();
        one.call->place = in.words();
        one.call->tid = in.number();
        one.call->on_gpu = in.flag();
    }
    one.at = std::chrono::steady_clock::time_point(in.duration());
    one.own_frame = in.words();
    one.process = take_process(in);
    one.process.cpu_time = std::chrono::milliseconds(in.duration().count());
    if (in.flag()) one.runs = take_runs(in);
    return one;
}

}  // namespace

std::string bytes_of(const ThreadsMessage& message) {
    MessageWriter out(MessageType::threads);
    const std::size_t count = std::min(message.threads.size(), most_told_threads);
    out.number(message.round).number(count);
    for (std::size_t i = 0; i < count; ++i) {
        const RankRuns& one = message.threads[i];
        out.number(one.rank).number(std::int64_t{one.pid}).flag(one.is_of_first);
        put(out, one.runs);
        out.number(one.looks).number(one.waits).flag(one.use.has_value());
        if (one.use) put_use(out, *one.use);
    }
    return out.take();
}

ThreadsMessage take_threads_message(MessageReader& in) {
    ThreadsMessage message;
    message.round = in.number();
    message.threads.resize(in.count(most_told_threads));
    for (RankRuns& one : message.threads) {
        one.rank = in.number();
        one.pid = in.number();
        one.is_of_first = in.flag();
        one.runs = take_runs(in);
        one.looks = in.number();
        one.waits = in.number();
        if (one.waits > one.looks || one.looks > most_looks) refuse_message("looks are too many");
        if (in.flag()) one.use = take_use(in);
    }
    const auto unordered = [](const RankRuns& one, const RankRuns& next) {
        return one.rank > next.rank ||
               (one.rank == next.rank && (!one.is_of_first || next.is_of_first));
    };
    if (std::ranges::adjacent_find(message.threads, unordered) != message.threads.end()) {
        refuse_message("threads are in no order");
    }
    return message;
}

std::string bytes_of(const ReadMessage& message) {
    return MessageWriter(MessageType::read).number(message.round).number(message.question).take();
}

ReadMessage take_read_message(MessageReader& in) {
    ReadMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    return message;
}

std::string bytes_of(const ReadingsMessage& message) {
    MessageWriter out(MessageType::readings);
    out.number(message.round).number(message.question);
    const std::size_t ranks = std::min(message.ranks.size(), most_silent_ranks);
    out.number(ranks);
    for (std::size_t i = 0; i < ranks; ++i) put(out, message.ranks[i]);
    const std::size_t ended = std::min(message.ended.size(), most_silent_ranks);
    out.number(ended);
    for (std::size_t i = 0; i < ended; ++i) out.number(message.ended[i]);
    return out.take();
}

ReadingsMessage take_readings_message(MessageReader& in) {
    ReadingsMessage message;
    message.round = in.number();
    message.question = in.unsigned_wide();
    message.ranks.resize(in.count(most_silent_ranks));
    for (RankReading& one : message.ranks) one = take_reading(in);
    message.ended.resize(in.count(most_silent_ranks));
    for (int& rank : message.ended) rank = in.number();
    std::vector<int> all = message.ended;
    for (const RankReading& one : message.ranks) all.push_back(one.rank);
    std::ranges::sort(all);
    if (std::ranges::adjacent_find(all) != all.end()) refuse_message("a rank is told of twice");
    return message;
}

}  // namespace ddp::launcher
