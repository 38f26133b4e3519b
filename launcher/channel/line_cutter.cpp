// Only the last, unfinished line is kept; whatever ends in a newline goes out as it came.
#include "launcher/channel/line_cutter.hpp"

#include <utility>

namespace ddp::launcher {

std::string LineCutter::feed(std::string_view bytes) {
    const std::size_t last = bytes.rfind('\n');
    std::string complete;
    if (last != bytes.npos) {
        complete = std::exchange(rest_, {});
        complete.append(bytes.substr(0, last + 1));
        bytes.remove_prefix(last + 1);
        const bool collapse = returns_ == CarriageReturns::collapse &&
                              (redrawn_ || complete.find('\r') != complete.npos);
        if (collapse) complete = last_states(complete);
        in_line_ = false;
        redrawn_ = false;
    }
    rest_.append(bytes);
    if (returns_ == CarriageReturns::collapse) collapse_rest();
    if (rest_.size() >= limit_) {
        complete.append(std::exchange(rest_, {}));
        in_line_ = true;
    }
    return complete;
}

// Of each line, which ends in a newline, what follows its last carriage return, but for those right
// before the newline.
std::string LineCutter::last_states(std::string_view lines) const {
    std::string result;
    bool continued = in_line_;
    bool was_redrawn = redrawn_;
    while (!lines.empty()) {
        const std::string_view line = lines.substr(0, lines.find('\n') + 1);
        lines.remove_prefix(line.size());
        const std::size_t text_end = line.find_last_not_of("\r\n");
        const std::size_t from =
            text_end == line.npos ? line.npos : line.substr(0, text_end).rfind('\r');
        if (continued && (was_redrawn || from != line.npos)) result += '\r';
        const bool returns_at_end = line.size() > 1 && line[line.size() - 2] == '\r';
        if (text_end != line.npos) {
            const std::size_t start = from == line.npos ? 0 : from + 1;
            result.append(line.substr(start, text_end + 1 - start));
        }
        result += returns_at_end ? "\r\n" : "\n";
        continued = false;
        was_redrawn = false;
    }
    return result;
}

// A carriage return at the very end may still become "\r\n".
void LineCutter::collapse_rest() {
    const std::size_t text_end = rest_.find_last_not_of('\r');
    if (text_end == rest_.npos) return;
    const std::size_t from = rest_.rfind('\r', text_end);
    if (from == rest_.npos) return;
    rest_.erase(0, from + 1);
    redrawn_ = true;
}

std::string_view LineCutter::rest() const {
    std::string_view text = rest_;
    if (returns_ == CarriageReturns::collapse) {
        while (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    }
    return text;
}

std::string LineCutter::take_rest() {
    if (!rest_.empty()) in_line_ = true;
    return std::exchange(rest_, {});
}

std::string LineCutter::finish() {
    if (rest_.empty() && !in_line_) return {};
    return feed("\n");
}

}  // namespace ddp::launcher
