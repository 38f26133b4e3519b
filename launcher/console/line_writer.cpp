#include "launcher/console/line_writer.hpp"

#include "launcher/console/line_prefix.hpp"

#include <sys/ioctl.h>

#include <algorithm>

namespace ddp::launcher {
namespace {

std::uint64_t newlines_in(std::string_view text) {
    return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

std::size_t columns_of(int fd) {
    constexpr std::size_t usual = 80;
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return usual;
    return size.ws_col;
}

// The prefix before each line, but not after the last newline.
void append_lines(std::string& out, std::string_view prefix, std::string_view text) {
    if (prefix.empty()) {
        out.append(text);
        return;
    }
    while (!text.empty()) {
        const std::size_t newline = text.find('\n');
        const std::size_t size = newline == text.npos ? text.size() : newline + 1;
        out.append(prefix).append(text.substr(0, size));
        text.remove_prefix(size);
    }
}

}  // namespace

LineWriter::LineWriter(int fd)
    : output_(fd), live_(output_.is_terminal() && terminal_can_redraw()) {}

void LineWriter::put(StreamKey key, std::string_view prefix, std::string_view text,
                     LineStart start) {
    if (text.empty()) return;
    std::string out;
    const bool goes_on = start == LineStart::continued && open_ == key;
    if (goes_on) {
        const std::size_t newline = text.find('\n');
        const std::size_t size = newline == text.npos ? text.size() : newline + 1;
        out.append(text.substr(0, size));
        append_lines(out, prefix, text.substr(size));
    } else {
        end_open_line(out);
        // To go back to the beginning of a line that is not there any more.
        if (start == LineStart::continued && text.front() == '\r') text.remove_prefix(1);
        append_lines(out, prefix, text);
    }
    open_.reset();
    if (text.empty() || text.back() != '\n') open_ = key;
    write(out);
}

void LineWriter::put_raw(StreamKey key, std::string_view bytes) {
    if (bytes.empty()) return;
    open_.reset();
    if (bytes.back() != '\n') open_ = key;
    write(bytes);
}

void LineWriter::say(std::string_view lines) {
    std::string out;
    end_open_line(out);
    out.append(lines);
    write(out);
}

void LineWriter::end_open_line(std::string& out) {
    if (open_) out += '\n';
    open_.reset();
}

void LineWriter::write(std::string_view text) {
    if (lossy(Clock::now())) {
        lost_lines_ += newlines_in(text);
        return;
    }
    if (live_lines_.drawn()) {
        output_.write(live_lines_.erase());
        shown_live_.clear();
    }
    output_.write(text);
}

void LineWriter::show_live(const std::vector<std::string>& lines) {
    if (!live_ || open_ || output_.queued_bytes() > 0 || lines == shown_live_) return;
    std::string out = live_lines_.erase();
    out += live_lines_.draw(lines, columns_of(output_.fd()) - 1);
    output_.write(out);
    shown_live_ = lines;
}

bool LineWriter::lossy(Clock::time_point now) const {
    if (!output_.is_terminal()) return false;
    return output_.gone() ||
           (output_.queued_bytes() > 0 && now - output_.stuck_since() >= stuck_time);
}

void LineWriter::give_up() {
    lost_lines_ += output_.queued_lines();
    output_.give_up();
}

}  // namespace ddp::launcher
