#include "launcher/console/console.hpp"

#include "base/log.hpp"
#include "base/net/socket.hpp"
#include "launcher/console/line_prefix.hpp"
#include "launcher/console/status_line.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::size_t max_live_parts = 8;
// Few messages, and less than the least credit of a stream (see Relay).
constexpr std::size_t shown_at_once = 32 * 1024;

LineStart start_of(const ScreenLines& lines) {
    return lines.in_line() ? LineStart::continued : LineStart::fresh;
}

void make_earlier(std::optional<Console::Time>& time, Console::Time other) {
    time = time ? std::min(*time, other) : other;
}

}  // namespace

Console::Console(ConsoleSettings settings, int out_fd, int err_fd)
    : settings_(std::move(settings)),
      status_wanted_(wants_status_line(settings_)),
      hostname_(base::host_name()) {
    sinks_.push_back({.writer = std::make_unique<LineWriter>(out_fd)});
    if (are_one_file(out_fd, err_fd)) return;
    sinks_.push_back({.writer = std::make_unique<LineWriter>(err_fd)});
}

std::string Console::prefix_for(StreamKey key, const LineWriter& writer) const {
    const bool terminal = writer.output().is_terminal();
    const std::string_view chosen =
        prefix_template_for(settings_, key.local_rank, key.stream,
                            terminal ? OutputTarget::terminal : OutputTarget::elsewhere);
    if (chosen.empty()) return {};
    const auto pid = pids_.find(key.local_rank);
    const std::string prefix = expand_prefix(chosen, {.role_name = settings_.role,
                                                      .rank = first_rank_ + key.local_rank,
                                                      .local_rank = key.local_rank,
                                                      .hostname = hostname_,
                                                      .pid = pid != pids_.end() ? pid->second : 0});
    return terminal && colours_wanted() ? coloured(prefix, first_rank_ + key.local_rank) : prefix;
}

Console::Source& Console::source_of(StreamKey key) {
    const auto [found, added] = sources_.try_emplace(key);
    Source& source = found->second;
    if (added) {
        source.writer = sink_of(key.stream).writer.get();
        source.prefix = prefix_for(key, *source.writer);
        source.raw = settings_.workers == 1 && source.prefix.empty();
    }
    return source;
}

void Console::take(const OutputMessage& message) {
    const StreamKey key{message.local_rank, message.stream};
    Source& source = source_of(key);
    if (message.bytes.empty()) return end(key, source);
    Sink& sink = sink_of(key.stream);
    if (source.raw) {
        source.writer->put_raw(key, message.bytes);
    } else {
        source.came_at = Clock::now();
        const LineStart start = start_of(source.lines);
        const std::string lines = source.lines.feed(message.bytes);
        if (!lines.empty()) settle_other(key, source);
        put(key, source, start, lines);
    }
    sink.changed = true;
    sink.written_at = Clock::now();
    sink.queued.push_back({key, source.writer->output().accepted(), message.bytes.size()});
}

// Whole lines, and notes what is left.
void Console::put(StreamKey key, Source& source, LineStart start, const std::string& text) {
    const std::string lines = repeated_.without_repeated(text, start == LineStart::continued);
    source.writer->put(key, source.prefix, lines, start);
    if (!lines.empty()) unfinished_.erase(key);
    note_rest(key, source);
}

void Console::settle(StreamKey key, Source& source) {
    const LineStart start = start_of(source.lines);
    put(key, source, start, source.lines.settle());
    sink_of(key.stream).changed = true;
}

// A bar that has ended on stderr comes before what the rank prints then.
void Console::settle_other(StreamKey key, const Source& source) {
    key.stream = key.stream == Stream::out ? Stream::err : Stream::out;
    const auto found = sources_.find(key);
    if (found == sources_.end() || found->second.writer != source.writer) return;
    if (found->second.lines.settles() == ScreenLines::Settles::soon) settle(key, found->second);
}

void Console::note_rest(StreamKey key, Source& source) {
    const bool settles = source.lines.settles() != ScreenLines::Settles::never;
    if (source.lines.rows().empty() && !settles) {
        unfinished_.erase(key);
    } else if (unfinished_.insert(key).second) {
        source.rest_since = Clock::now();
    }
}

// The next that comes from this rank is another attempt's.
void Console::end(StreamKey key, Source& source) {
    if (source.raw) {
        if (source.writer->open_line() == key) source.writer->put_raw(key, "\n");
    } else {
        const LineStart start = start_of(source.lines);
        source.writer->put(key, source.prefix, source.lines.finish(), start);
    }
    sink_of(key.stream).changed = true;
    unfinished_.erase(key);
    sources_.erase(key);
}

void Console::say(std::string_view text) {
    std::string lines = "ddp-launch: ";
    for (const char c : text) {
        lines += c;
        if (c == '\n') lines += "ddp-launch: ";
    }
    pass_on(lines + "\n");
}

void Console::warn(std::string_view text) {
    if (base::log_enabled(base::LogLevel::warn)) say(text);
}

void Console::pass_on(std::string_view lines) {
    if (lines.empty()) return;
    Sink& sink = sink_of(Stream::err);
    sink.writer->say(lines);
    sink.changed = true;
}

void Console::take(const StateMessage& message) {
    if (message.state == WorkerState::started) {
        pids_[message.local_rank] = message.pid;
        repeated_.forget();
    } else {
        pids_.erase(message.local_rank);
    }
    sink_of(Stream::err).changed = true;
}

void Console::take(const StatusMessage& message) {
    progress_ = message;
    sink_of(Stream::err).changed = true;
}

// In the first round; later there may be more or fewer.
void Console::take(const PlaceMessage& message) {
    first_rank_ = message.first_rank;
    for (const NamedRank& named : std::exchange(settings_.named_ranks, {})) {
        if (named.rank < message.world_size) continue;
        warn(std::string(named.option) + ": the job has no rank " + std::to_string(named.rank) +
             "; they go from 0 to " + std::to_string(message.world_size - 1));
    }
}

void Console::finish() {
    while (!sources_.empty()) end(sources_.begin()->first, sources_.begin()->second);
    finished_ = true;
    for (const Sink& sink : sinks_) sink.writer->show_live({});
}

std::array<pollfd, 2> Console::wanted() const {
    std::array<pollfd, 2> entries{{{-1, POLLOUT, 0}, {-1, POLLOUT, 0}}};
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
        const Output& output = sinks_[i].writer->output();
        if (output.queued_bytes() > 0) entries[i].fd = output.fd();
    }
    return entries;
}

// A line that is unfinished because its reader or another worker's lines are in the way is not to
// be cut for that.
std::optional<Console::Time> Console::part_due(StreamKey key, const Source& source) const {
    const Sink& sink = sink_of(key.stream);
    if (const auto settles = source.lines.settles(); settles != ScreenLines::Settles::never) {
        const bool is_soon = settles == ScreenLines::Settles::soon;
        return std::max(source.came_at, sink.full_at) + (is_soon ? part_time : longest_part_time);
    }
    const auto& open = source.writer->open_line();
    if (source.writer->live() || source.lines.redrawn() || (open && *open != key)) return {};
    const Time since = std::max(source.rest_since, sink.full_at);
    return std::min(std::max(since, sink.written_at) + part_time, since + longest_part_time);
}

void Console::show_part(StreamKey key, Source& source) {
    if (source.lines.settles() != ScreenLines::Settles::never) return settle(key, source);
    const LineStart start = start_of(source.lines);
    source.writer->put(key, source.prefix, source.lines.take_rest(), start);
    unfinished_.erase(key);
}

std::optional<Console::Time> Console::next_due() const {
    std::optional<Time> due;
    for (const StreamKey key : unfinished_) {
        const Source& source = sources_.at(key);
        const auto part = part_due(key, source);
        if (part) make_earlier(due, *part);
    }
    for (const Sink& sink : sinks_) {
        const Output& output = sink.writer->output();
        if (output.queued_bytes() > 0) {
            // A terminal that is stuck is only waited for.
            if (output.is_terminal() && (finished_ || !sink.writer->lossy(Clock::now()))) {
                make_earlier(due, output.stuck_since() + LineWriter::stuck_time);
            }
        } else if (sink.writer->live() && !finished_) {
            if (sink.changed) make_earlier(due, sink.next_draw);
            if (status_wanted_) make_earlier(due, sink.next_draw + quiet_time - redraw_time);
        }
    }
    return due;
}

void Console::run(Time now, std::optional<Time> stop_asked_at) {
    for (Sink& sink : sinks_) {
        sink.writer->output().pump();
        if (sink.writer->output().queued_bytes() > 0) sink.full_at = now;
        give_up_stuck(sink, now, stop_asked_at);
    }
    show_due_parts(now);
    for (Sink& sink : sinks_) {
        redraw(sink, now);
        count_as_shown(sink, now);
    }
    if (finished_) say_what_was_lost();
}

void Console::show_due_parts(Time now) {
    if (unfinished_.empty()) return;
    const std::set<StreamKey> keys = unfinished_;
    for (const StreamKey key : keys) {
        Source& source = sources_.at(key);
        const auto due = part_due(key, source);
        if (due && now >= *due) show_part(key, source);
    }
}

void Console::redraw(Sink& sink, Time now) {
    if (finished_ || !sink.writer->live() || now < sink.next_draw) return;
    if (!sink.changed && !status_wanted_) return;
    sink.writer->show_live(live_lines(sink, now));
    sink.changed = std::any_of(unfinished_.begin(), unfinished_.end(), [&](StreamKey key) {
        return sources_.at(key).rest_since + part_time > now;
    });
    sink.next_draw = now + redraw_time;
}

std::vector<std::string> Console::live_lines(const Sink& sink, Time now) const {
    std::vector<std::string> lines;
    for (const StreamKey key : unfinished_) {
        const Source& source = sources_.at(key);
        const bool due = source.lines.redrawn() || now >= source.rest_since + part_time;
        if (source.writer != sink.writer.get() || !due) continue;
        for (const std::string_view row : source.lines.rows()) {
            if (lines.size() < max_live_parts) lines.push_back(source.prefix + std::string(row));
        }
    }
    const bool has_status = status_wanted_ && &sink == &sinks_.back();
    if (has_status && now >= started_at_ + quiet_time) lines.push_back(status());
    return lines;
}

std::string Console::status() const {
    JobStatus status =
        job_status(progress_, std::chrono::floor<std::chrono::seconds>(Clock::now() - started_at_));
    if (progress_.hosts <= 1) {  // it is here, and this is newer
        status.workers = settings_.workers;
        status.running = static_cast<int>(pids_.size());
    }
    return "ddp-launch: " + status_text(status);
}

void Console::count_as_shown(Sink& sink, Time now) {
    const std::uint64_t settled = sink.writer->output().settled();
    const bool lossy = sink.writer->lossy(now);
    while (!sink.queued.empty() && (lossy || sink.queued.front().until <= settled)) {
        shown_[sink.queued.front().key] += sink.queued.front().bytes;
        sink.queued.pop_front();
    }
}

std::vector<ShownMessage> Console::take_shown() {
    std::vector<ShownMessage> messages;
    for (auto& [key, bytes] : shown_) {
        if (bytes < shown_at_once) continue;
        messages.push_back({key.stream, key.local_rank, static_cast<std::uint32_t>(bytes)});
        bytes = 0;
    }
    return messages;
}

void Console::give_up_stuck(Sink& sink, Time now, std::optional<Time> stop_asked_at) {
    LineWriter& writer = *sink.writer;
    Output& output = writer.output();
    const bool of_stdout = &sink == &sinks_.front();
    if (const int problem = output.take_problem(); problem != 0 && of_stdout) {
        warn(std::string("cannot write to stdout: ") + std::strerror(problem) +
             "; what workers write there is lost from now on");
    }
    if (output.queued_bytes() == 0) return;
    if (finished_ && writer.lossy(now)) return writer.give_up();
    if (!stop_asked_at) return;
    if (now > std::max(*stop_asked_at, output.stuck_since()) + LineWriter::stuck_time) {
        writer.give_up();
    }
}

void Console::say_what_was_lost() {
    if (lost_said_ || !idle()) return;
    std::uint64_t lost = 0;
    for (const Sink& sink : sinks_) lost += sink.writer->lost_lines();
    lost_said_ = true;
    if (lost == 0) return;
    warn(std::to_string(lost) + (lost == 1 ? " line was" : " lines were") +
         " not shown: nobody took them; --log-dir keeps all");
}

bool Console::idle() const {
    return std::all_of(sinks_.begin(), sinks_.end(),
                       [](const Sink& sink) { return sink.writer->output().queued_bytes() == 0; });
}

std::vector<Stream> Console::take_closed() {
    std::vector<Stream> closed;
    for (Sink& sink : sinks_) {
        const Output& output = sink.writer->output();
        if (!output.gone() || output.is_terminal() || std::exchange(sink.closed_told, true)) {
            continue;
        }
        if (&sink == &sinks_.front()) closed.push_back(Stream::out);
        if (&sink == &sinks_.back()) closed.push_back(Stream::err);
    }
    return closed;
}

bool Console::stdout_lost_its_reader() const {
    return sinks_.front().writer->output().reader_is_gone();
}

}  // namespace ddp::launcher
