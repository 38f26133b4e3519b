// What the user sees: the outputs of all workers, the launcher's own lines and the status line, on
// the front's stdout and stderr.
//
// One worker whose lines need no prefix: byte for byte, at once, as if it had been started without
// us. Otherwise by whole lines. An unfinished line shows after 100 ms: on a terminal below all
// others, where it is redrawn until it ends; elsewhere it is written as far as it goes, as soon as
// nobody else writes (after 2 s in any case) and nobody's unfinished line is in the way, and gets a
// newline before its time only when another's whole line must come. Progress bars drawn with
// carriage returns, also several below each other, are redrawn on a terminal, and elsewhere only
// their last state is written.
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/console/line_writer.hpp"
#include "launcher/console/output_rules.hpp"
#include "launcher/console/repeated_errors.hpp"
#include "launcher/console/screen_lines.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

class Console {
public:
    using Clock = Output::Clock;
    using Time = Clock::time_point;

    // Until an unfinished line shows: when nobody else writes, and in any case.
    static constexpr std::chrono::milliseconds part_time{100};
    static constexpr std::chrono::milliseconds longest_part_time{2000};
    static constexpr std::chrono::milliseconds redraw_time{100};  // between two drawings
    static constexpr std::chrono::milliseconds quiet_time{1000};  // until the status line shows

    Console(ConsoleSettings settings, int out_fd, int err_fd);

    void take(const OutputMessage& message);
    // Each line of the text, after the program's name.
    void say(std::string_view text);
    void warn(std::string_view text);  // the same, where DDP_LOG_LEVEL lets warnings through
    // Whole lines from the agent's logger, as they are.
    void pass_on(std::string_view lines);
    void take(const StateMessage& message);
    void take(const StatusMessage& message);
    void take(const PlaceMessage& message);
    // Nothing more comes from workers: ends their lines, clears the live ones.
    void finish();

    // What to wait for: writable outputs, and the time of run().
    std::array<pollfd, 2> wanted() const;
    std::optional<Time> next_due() const;
    // Writes, shows what is due. Once a stop was asked for, any output that takes nothing for 2 s
    // is given up; after finish() a terminal is.
    void run(Time now, std::optional<Time> stop_asked_at);
    // Bytes of workers that need no more memory here, in few messages.
    std::vector<ShownMessage> take_shown();
    // All is written, or given up.
    bool idle() const;
    // Outputs of which the reader is gone, or that take nothing any more; each once. A terminal is
    // none: the user may come back to it.
    std::vector<Stream> take_closed();
    // Nobody reads stdout: it is a pipe whose other end is closed.
    bool stdout_lost_its_reader() const;

private:
    struct Source {
        LineWriter* writer = nullptr;
        ScreenLines lines = ScreenLines();
        std::string prefix = {};
        bool raw = false;
        Time came_at{};     // the last time that something came
        Time rest_since{};  // while there is an unfinished line
    };
    struct Queued {
        StreamKey key;
        std::uint64_t until;  // of what the output accepted
        std::size_t bytes;
    };
    struct Sink {
        std::unique_ptr<LineWriter> writer;
        std::deque<Queued> queued = {};
        Time written_at{};  // the last time that something came
        Time full_at{};     // the last time that something had to wait
        Time next_draw{};
        bool changed = false;  // live lines may have
        bool closed_told = false;
    };

    Sink& sink_of(Stream stream) { return stream == Stream::err ? sinks_.back() : sinks_.front(); }
    const Sink& sink_of(Stream stream) const {
        return stream == Stream::err ? sinks_.back() : sinks_.front();
    }
    Source& source_of(StreamKey key);
    std::string prefix_for(StreamKey key, const LineWriter& writer) const;
    void end(StreamKey key, Source& source);
    void note_rest(StreamKey key, Source& source);
    void put(StreamKey key, Source& source, LineStart start, const std::string& text);
    void settle(StreamKey key, Source& source);
    void settle_other(StreamKey key, const Source& source);
    void show_part(StreamKey key, Source& source);
    std::optional<Time> part_due(StreamKey key, const Source& source) const;
    void show_due_parts(Time now);
    void redraw(Sink& sink, Time now);
    std::vector<std::string> live_lines(const Sink& sink, Time now) const;
    std::string status() const;
    void count_as_shown(Sink& sink, Time now);
    void give_up_stuck(Sink& sink, Time now, std::optional<Time> stop_asked_at);
    void say_what_was_lost();

    ConsoleSettings settings_;
    bool status_wanted_;
    std::string hostname_;
    Time started_at_ = Clock::now();
    std::vector<Sink> sinks_;  // stdout's and stderr's; one when they are the same file
    std::map<StreamKey, Source> sources_;
    std::set<StreamKey> unfinished_;
    std::map<int, pid_t> pids_;  // of running workers
    int first_rank_ = 0;         // of the worker with local rank 0
    RepeatedErrors repeated_;
    std::map<StreamKey, std::size_t> shown_;
    StatusMessage progress_;
    bool finished_ = false;
    bool lost_said_ = false;
};

}  // namespace ddp::launcher
