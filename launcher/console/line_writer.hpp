// One output of the front, by lines: knows whose unfinished line stands at its end, so that nobody
// else's words land in it, puts prefixes where lines begin, and keeps the live lines of a terminal
// out of the way. What a terminal that takes nothing cannot show is counted and dropped; a pipe and
// a file keep everything in the queue, and it is for the caller to stop asking for more.
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/console/live_lines.hpp"
#include "launcher/console/output.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

struct StreamKey {
    int local_rank = 0;
    Stream stream = Stream::out;
    auto operator<=>(const StreamKey&) const = default;
};

// Whether text begins a line or goes on with one of which a part is out.
enum class LineStart { fresh, continued };

class LineWriter {
public:
    using Clock = Output::Clock;
    // A terminal that takes nothing for so long does not hold up the job any longer.
    static constexpr std::chrono::milliseconds stuck_time{2000};

    explicit LineWriter(int fd);

    Output& output() { return output_; }
    const Output& output() const { return output_; }
    // A terminal that can redraw: unfinished lines are shown by show_live().
    bool live() const { return live_; }

    // Lines of a worker, or a part of one. Another's unfinished line before it gets a newline; if
    // it was this worker's own that somebody else ended so, the rest of it begins with a prefix
    // again.
    void put(StreamKey key, std::string_view prefix, std::string_view text, LineStart start);
    // As the only worker wrote it, byte for byte.
    void put_raw(StreamKey key, std::string_view bytes);
    // Whole lines of the launcher's own.
    void say(std::string_view lines);

    const std::optional<StreamKey>& open_line() const { return open_; }
    // Draws these lines below all others, in the place of the last ones; none: clears. Does nothing
    // while an unfinished line is in the way, or the terminal is busy.
    void show_live(const std::vector<std::string>& lines);

    // Nothing that is put now would be seen.
    bool lossy(Clock::time_point now) const;
    // Ends an output whose queue will not get shorter; what is in it is lost.
    void give_up();
    std::uint64_t lost_lines() const { return lost_lines_; }

private:
    void end_open_line(std::string& out);
    void write(std::string_view text);

    Output output_;
    bool live_;
    LiveLines live_lines_;
    std::vector<std::string> shown_live_;
    std::optional<StreamKey> open_;
    std::uint64_t lost_lines_ = 0;
};

}  // namespace ddp::launcher
