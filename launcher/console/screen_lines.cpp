#include "launcher/console/screen_lines.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::string_view csi = "\x1b[";
constexpr std::string_view blanks = " \t";
constexpr std::size_t longest_escape = 32;
constexpr std::size_t longest_blank = 4096;  // what is longer is no cleared bar

// The escape sequence at the start (ECMA-48: CSI, parameters, a final byte), or the byte that
// begins none; nothing: it has not ended.
std::string_view escape_in(std::string_view text) {
    text = text.substr(0, longest_escape);
    const std::string_view begin = text.substr(0, csi.size());
    if (begin != csi.substr(0, begin.size())) return text.substr(0, 1);
    const auto is_parameter = [](char byte) { return byte >= ' ' && byte <= '?'; };
    const auto found = std::ranges::find_if_not(text.substr(begin.size()), is_parameter);
    if (found == text.end())
        return text.size() < longest_escape ? std::string_view{} : text.substr(0, 1);
    const bool is_final = *found >= '@' && *found <= '~';
    return is_final ? std::string_view{text.begin(), found + 1} : text.substr(0, 1);
}

// Nothing of it can be seen.
bool is_blank(std::string_view text) {
    if (text.size() > longest_blank) return false;
    while (!text.empty()) {
        const std::string_view escape = escape_in(text);
        const bool is_escape = escape.size() > 1;
        if (!is_escape && blanks.find(text.front()) == blanks.npos) return false;
        text.remove_prefix(is_escape ? escape.size() : 1);
    }
    return true;
}

// Rows that an escape sequence moves the cursor up; 0: it is another one.
std::size_t rows_up(std::string_view escape) {
    if (!escape.starts_with(csi) || !escape.ends_with('A')) return 0;
    const std::string_view number = escape.substr(csi.size(), escape.size() - csi.size() - 1);
    if (number.empty()) return 1;
    std::size_t count = 0;
    const auto [end, error] = std::from_chars(number.begin(), number.end(), count);
    return error == std::errc{} && end == number.end() ? count : 0;
}

}  // namespace

std::string ScreenLines::feed(std::string_view bytes) {
    std::string out;
    const std::string joined = pending_.empty() ? std::string() : pending_ + std::string(bytes);
    if (!std::exchange(pending_, {}).empty()) bytes = joined;
    if (is_plain(bytes)) take_lines(bytes, out);
    while (!bytes.empty()) {
        const std::size_t plain = std::min(bytes.find_first_of("\n\r\x1b"), bytes.size());
        if (plain > 0) write(bytes.substr(0, plain), out);
        bytes.remove_prefix(plain);
        if (bytes.empty()) break;
        if (bytes.front() == '\x1b') {
            const std::size_t taken = take_escape(bytes, out);
            if (taken == 0) break;
            bytes.remove_prefix(taken);
            continue;
        }
        if (bytes.front() == '\n') end_row(out);
        has_returned_ = bytes.front() == '\r';
        is_at_start_ = true;
        bytes.remove_prefix(1);
    }
    return out;
}

// Nothing is drawn again in it, nor has anything been: nearly always.
bool ScreenLines::is_plain(std::string_view bytes) const {
    const Row& row = rows_.front();
    const bool was_plain = rows_.size() == 1 && !row.is_bar && !row.is_moved && !has_returned_;
    return was_plain && bytes.find('\r') == bytes.npos && bytes.find('\x1b') == bytes.npos;
}

// All at once, as far as they have ended.
void ScreenLines::take_lines(std::string_view& bytes, std::string& out) {
    const std::size_t size = bytes.rfind('\n') + 1;
    if (size == 0) return;
    out += std::exchange(rows_.front(), {}).text;
    out += bytes.substr(0, size);
    bytes.remove_prefix(size);
    in_line_ = false;
    is_at_start_ = true;
    go_to(0);
}

// How many bytes that were; 0: more have to come.
std::size_t ScreenLines::take_escape(std::string_view bytes, std::string& out) {
    const std::string_view escape = escape_in(bytes);
    const std::size_t up = rows_up(escape);
    if (escape.empty()) {
        pending_ = bytes;
    } else if (up > 0) {
        move_up(up, out);
    } else if (!prepares_drawing(escape)) {
        write(escape, out);
    }
    return escape.size();
}

// Erases the cursor's row, or takes it to the beginning. Where nothing is drawn again these are
// bytes as all others.
bool ScreenLines::prepares_drawing(std::string_view escape) {
    Row& row = rows_[cursor_];
    const bool is_drawn = has_returned_ || row.is_bar || row.is_moved || rows_.size() > 1;
    if (!is_drawn) return false;
    if (escape == "\x1b[G" || escape == "\x1b[1G") {
        has_returned_ = is_at_start_ = true;
    } else if (escape == "\x1b[2K" ||
               (is_at_start_ && (escape == "\x1b[K" || escape == "\x1b[0K"))) {
        row.text.clear();
        row.is_bar = true;
    } else {
        return false;
    }
    return true;
}

void ScreenLines::write(std::string_view text, std::string& out) {
    const bool begins = texts_ == 0 || has_returned_;
    if (begins && cursor_ > 0 && is_last()) {
        const bool is_no_bar = texts_ == 0 && !has_returned_ && rows_[cursor_].is_new;
        if (is_no_bar || texts_ > 0) settle_above(out);
    }
    Row& row = rows_[cursor_];
    if (is_at_start_) {
        row.is_bar = has_returned_;
        row.text.clear();
    }
    is_at_start_ = has_returned_ = false;
    texts_ += begins ? 1 : 0;
    row.text += text;
    if (row.text.size() < (rows_.size() > 1 ? limit_ / most_rows : limit_)) return;
    settle_above(out);
    out += std::exchange(rows_[cursor_].text, {});
    in_line_ = true;
}

void ScreenLines::end_row(std::string& out) {
    rows_[cursor_].ends_in_return = std::exchange(has_returned_, false);
    if (!is_last()) return go_to(cursor_ + 1);
    if (texts_ > 0 || rows_.size() == most_rows) settle_above(out);
    if (cursor_ == 0 && !rows_[cursor_].is_bar) {
        put(std::exchange(rows_[cursor_], {}), out);
        return go_to(0);
    }
    rows_.emplace_back();
    go_to(cursor_ + 1);
}

void ScreenLines::move_up(std::size_t count, std::string& out) {
    has_returned_ = false;
    count = std::min(count, most_rows - 1);
    for (; cursor_ < count; ++cursor_) {
        if (rows_.size() == most_rows) break;
        rows_.insert(rows_.begin(), Row{.is_moved = true});
    }
    // Its beginning is a line of its own, which has nothing to do with that.
    if (std::exchange(in_line_, false)) out += '\n';
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].is_new = false;
    go_to(cursor_ - std::min(count, cursor_));
}

void ScreenLines::go_to(std::size_t row) {
    cursor_ = row;
    texts_ = 0;
}

// Nothing is left of a bar that was cleared, nor of a row that only the cursor has been in.
void ScreenLines::put(const Row& row, std::string& out) {
    const bool is_gone = (row.is_bar || row.is_moved) && is_blank(row.text);
    if (is_gone && !in_line_) return;
    if (in_line_ && row.is_bar) out += '\r';
    out += row.text;
    out += row.ends_in_return ? "\r\n" : "\n";
    in_line_ = false;
}

void ScreenLines::settle_above(std::string& out) {
    for (std::size_t i = 0; i < cursor_; ++i) put(rows_[i], out);
    rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(cursor_));
    cursor_ = 0;
}

ScreenLines::Settles ScreenLines::settles() const {
    if (cursor_ == 0 || !is_last()) return Settles::never;
    return is_blank(rows_[cursor_].text) ? Settles::soon : Settles::late;
}

std::string ScreenLines::settle() {
    std::string out;
    settle_above(out);
    return out;
}

std::string ScreenLines::finish() {
    std::string out;
    if (!pending_.empty()) write(std::exchange(pending_, {}), out);
    rows_[cursor_].ends_in_return = std::exchange(has_returned_, false);
    const bool is_in_part = in_line_ && rows_.size() == 1;
    const bool is_open = is_in_part || !rows_.back().text.empty() || rows_.back().ends_in_return;
    cursor_ = rows_.size() - 1;
    settle_above(out);
    if (is_open) put(rows_.front(), out);
    rows_.assign(1, {});
    go_to(0);
    is_at_start_ = true;
    return out;
}

std::vector<std::string_view> ScreenLines::rows() const {
    std::vector<std::string_view> shown;
    for (const Row& row : rows_) {
        const bool is_nothing = row.is_bar || row.is_moved ? is_blank(row.text) : row.text.empty();
        if (!is_nothing) shown.emplace_back(row.text);
    }
    return shown;
}

std::string ScreenLines::take_rest() {
    std::string rest = std::exchange(rows_[cursor_].text, {});
    in_line_ = in_line_ || !rest.empty();
    return rest;
}

bool ScreenLines::redrawn() const { return rows_.size() > 1 || rows_.front().is_bar; }

}  // namespace ddp::launcher
