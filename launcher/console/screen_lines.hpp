// ScreenLines: a worker's output as whole lines, of which nothing is left but what a terminal would
// still show: of progress bars, which are drawn again after '\r', the last state; of bars within
// bars, which move the cursor up to the outer one (ESC [ A), that of each; of one that was cleared
// nothing. A bar that has ended may be the outer one of a bar that begins, so it is held until it
// is known, or until who calls is tired of it.
//
//   rows_    the unfinished line, or bars, the cursor in one of them
//   '\n'     of a bar, moves the cursor to a row below, which is made where there is none; else the
//            line is complete
//   settled  rows above the cursor are lines, once it is known not to come back: what is written in
//            the row below is no bar, or is drawn again, or ends
//
// Invariant: what is neither drawn again nor moved over comes out as it came, with a newline at the
// end, a line longer than the limit in pieces. Memory is bounded by twice the limit.
#pragma once

#include "launcher/channel/line_cutter.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

class ScreenLines {
public:
    explicit ScreenLines(std::size_t limit = LineCutter::default_limit) : limit_(limit) {}

    // Takes bytes; returns what is complete: lines with their newlines, maybe none.
    std::string feed(std::string_view bytes);
    // Bars have ended, above the cursor: when nothing comes, settle() returns them. Soon: nor has
    // anything been written below.
    enum class Settles { never, late, soon };
    Settles settles() const;
    std::string settle();
    // At end of file: what is left, with newlines.
    std::string finish();

    // What is not complete, row by row, without what is out of it already. Valid until it changes.
    std::vector<std::string_view> rows() const;
    // Hands out the unfinished line, which is no bar, before its time; it goes on in what feed() or
    // finish() return later.
    std::string take_rest();
    // There is a bar: its state now is not worth keeping.
    bool redrawn() const;
    // A piece of the current line is out.
    bool in_line() const { return in_line_; }

private:
    struct Row {
        std::string text = {};
        bool is_bar = false;    // it was drawn again
        bool is_new = true;     // the cursor has not come up from it yet
        bool is_moved = false;  // it lies above all that is known: the cursor was moved there
        bool ends_in_return = false;
    };
    static constexpr std::size_t most_rows = 16;

    bool is_last() const { return cursor_ + 1 == rows_.size(); }
    bool is_plain(std::string_view bytes) const;
    void take_lines(std::string_view& bytes, std::string& out);
    std::size_t take_escape(std::string_view bytes, std::string& out);
    bool prepares_drawing(std::string_view escape);
    void write(std::string_view text, std::string& out);
    void end_row(std::string& out);
    void move_up(std::size_t count, std::string& out);
    void go_to(std::size_t row);
    void put(const Row& row, std::string& out);
    void settle_above(std::string& out);

    std::size_t limit_;
    std::vector<Row> rows_{1};
    std::size_t cursor_ = 0;     // its row
    std::size_t texts_ = 0;      // that were begun there since the cursor came
    bool has_returned_ = false;  // '\r' was the last that came
    bool is_at_start_ = true;    // of its row: what comes overwrites that
    bool in_line_ = false;       // of the first row
    std::string pending_;        // an escape sequence that has not ended
};

}  // namespace ddp::launcher
