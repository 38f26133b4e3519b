#include "launcher/worker/last_lines.hpp"

#include <utility>

namespace ddp::launcher {
namespace {

// Where the last max_lines lines begin and the one before them ends.
std::size_t start_of_what_counts(std::string_view bytes) {
    std::size_t at = bytes.size();
    for (std::size_t newlines = 0; at > 0; --at) {
        if (bytes[at - 1] == '\n' && ++newlines > LastLines::max_lines) return at;
    }
    return 0;
}

}  // namespace

void LastLines::feed(std::string_view bytes) {
    if (const std::size_t start = start_of_what_counts(bytes); start > 0) {
        bytes.remove_prefix(start);
        open_.clear();
    }
    for (;;) {
        const std::size_t newline = bytes.find('\n');
        add_to_open(bytes.substr(0, newline));
        if (newline == bytes.npos) return;
        close_open();
        bytes.remove_prefix(newline + 1);
    }
}

void LastLines::add_to_open(std::string_view part) {
    const std::size_t text_end = part.find_last_not_of('\r');
    if (text_end == part.npos) {
        open_.append(part);
    } else {
        const std::size_t from = part.rfind('\r', text_end);
        const bool redrawn = from != part.npos || (!open_.empty() && open_.back() == '\r');
        if (redrawn) open_.clear();
        open_.append(from == part.npos ? part : part.substr(from + 1));
    }
    // Of an endless line its end counts.
    if (open_.size() > max_bytes) open_.erase(0, open_.size() - max_bytes);
}

void LastLines::close_open() {
    while (!open_.empty() && open_.back() == '\r') open_.pop_back();
    bytes_ += open_.size();
    lines_.push_back(std::exchange(open_, {}));
    while (lines_.size() > max_lines || (bytes_ > max_bytes && lines_.size() > 1)) {
        bytes_ -= lines_.front().size();
        lines_.pop_front();
    }
}

std::string LastLines::text() const {
    std::string result;
    for (const std::string& line : lines_) result += (result.empty() ? "" : "\n") + line;
    std::string_view last = open_;
    while (!last.empty() && last.back() == '\r') last.remove_suffix(1);
    if (!last.empty()) result.append(result.empty() ? "" : "\n").append(last);
    return result;
}

}  // namespace ddp::launcher
