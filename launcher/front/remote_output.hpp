// The outputs of a job that runs on other hosts: what comes from each of them goes to our stdout
// and stderr, whole line by whole line. Words of the launchers there, which begin "ddp-launch: ",
// come from all of them, and are shown once.
// Invariant: no line is lost but what a stuck output held when the job was told to stop; what an
// output does not take is not asked for (takes()), so that memory stays bounded.
#pragma once

#include "launcher/channel/line_cutter.hpp"
#include "launcher/console/line_writer.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

// Of lines that several hosts say, the first: a host's second of a text is shown when no other has
// said it twice yet.
class RepeatedWords {
public:
    // What of these whole lines is new.
    std::string without_repeated(int host, std::string_view lines);

private:
    bool is_repeated(int host, std::string_view line);

    struct Said {
        std::map<int, int> times;  // by host
        int shown = 0;
    };
    std::map<std::string, Said, std::less<>> said_;
};

class RemoteOutput {
public:
    using Clock = LineWriter::Clock;
    using Time = Clock::time_point;

    // `greeting`: of the launchers, with which what they tell the starter alone begins.
    RemoteOutput(int out_fd, int err_fd, std::string greeting = {});

    // Whether more of this stream may be put now.
    bool takes(Stream stream) const;
    // What a host has written, in the pieces in which it came.
    void put(int host, Stream stream, std::string_view bytes);
    void end(int host, Stream stream);
    // A line of our own, after the program's name.
    void say(std::string_view text);

    // What to wait for.
    std::array<pollfd, 2> wanted() const;
    // Writes. Once a stop was asked for, an output that takes nothing for 2 s is given up.
    void run(Time now, std::optional<Time> stop_asked_at);
    bool is_idle() const;
    // It has a status line, which shows the time: run() is to be called each second.
    bool has_status() const { return status_.has_value(); }
    void end_status();  // it is shown no more
    // Of the job, from a launcher that was told of its end.
    const std::optional<int>& job_code() const { return job_code_; }
    // Nobody reads it any more.
    bool lost_its_reader(Stream stream) const;

private:
    LineWriter& writer_of(Stream stream) const {
        return stream == Stream::err ? *writers_.back() : *writers_.front();
    }
    void show(StreamKey key, std::string_view lines, LineStart start);
    std::string without_words_for_starter(std::string_view lines);
    void show_status(Time now);

    std::vector<std::unique_ptr<LineWriter>> writers_;  // one when both are the same file
    std::map<StreamKey, LineCutter> cutters_;
    RepeatedWords repeated_;
    std::string greeting_;
    std::optional<StatusMessage> status_;  // the last
    std::optional<int> job_code_;
    Time began_ = Clock::now();
    Time next_draw_{};
};

}  // namespace ddp::launcher
