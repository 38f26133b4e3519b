#include "launcher/hosts/messages/silent_message.hpp"

#include <algorithm>
#include <limits>

namespace ddp::launcher {
namespace {

constexpr std::size_t most_silent_ranks = 64;
constexpr int most_looks = 1'000;  // since the last message
constexpr std::size_t most_told_threads = 2 * most_silent_ranks;

void put(MessageWriter& out, const ThreadRuns& runs) {
    out.number(runs.switches).number(std::int64_t{runs.cpu.count()});
}
ThreadRuns take_runs(MessageReader& in) {
    ThreadRuns runs;
    runs.switches = in.unsigned_wide();
    runs.cpu = in.duration();
    return runs;
}

void put(MessageWriter& out, const ProcessState& process) {
    out.number(std::int64_t{process.pid}).small(static_cast<std::uint8_t>(process.state));
    out.number(std::int64_t{process.tracer}).flag(process.is_frozen);
    out.number(std::int64_t{process.cpu_time.count()}).words(process.waits_in);
}
ProcessState take_process(MessageReader& in) {
    ProcessState process;
    process.pid = in.number();
    process.state = static_cast<char>(in.small(std::numeric_limits<char>::max()));
    process.tracer = in.number();
    process.is_frozen = in.flag();
    process.cpu_time = std::chrono::milliseconds(in.duration().count());
    process.waits_in = in.words();
    return process;
}

void put(MessageWriter& out, const RankReading& one) {
    out.number(one.rank).number(std::int64_t{one.pid});
    out.flag(one.is_whole).flag(one.in_python).flag(one.has_problem).flag(one.call.has_value());
    if (one.call)
        out.words(one.call->name).words(one.call->place).number(std::int64_t{one.call->tid});
    out.number(clock_ns_of(one.at)).words(one.own_frame);
    put(out, one.process);
    out.flag(one.runs.has_value());
    if (one.runs) put(out, *one.runs);
}
RankReading take_reading(MessageReader& in) {
    RankReading one;
    one.rank = in.number();
    one.pid = in.number();
    one.is_whole = in.flag();
    one.in_python = in.flag();
    one.has_problem = in.flag();
    if (in.flag()) {
        one.call.emplace();
        one.call->name = in.words();
        one.call->place = in.words();
        one.call->tid = in.number();
    }
    one.at = std::chrono::steady_clock::time_point(in.duration());
    one.own_frame = in.words();
    one.process = take_process(in);
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
        out.number(one.looks).number(one.waits);
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
