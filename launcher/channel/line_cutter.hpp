// Cuts a worker's output, which arrives in any pieces, into whole lines, so that lines of two
// workers never mix. Every byte comes out once and in order, with these exceptions: a line longer
// than the limit comes out in pieces, an unterminated last line gets the newline that it lacks, and
// where carriage returns collapse, only what a terminal would still show of a line is left.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::launcher {

// What becomes of "10 %\r20 %\r30 %\n", the way progress bars are drawn. "\r\n" stays as it is.
enum class CarriageReturns {
    keep,
    collapse,  // "30 %\n"; with "\r" before it when a part of the line is out already
};

class LineCutter {
public:
    static constexpr std::size_t default_limit = std::size_t{1} << 20;

    explicit LineCutter(CarriageReturns returns = CarriageReturns::keep,
                        std::size_t limit = default_limit)
        : returns_(returns), limit_(limit) {}

    // Takes bytes; returns what is complete: lines with their newlines, maybe none.
    std::string feed(std::string_view bytes);
    // At end of file: what is left, with a newline.
    std::string finish();

    // The line that has not ended, or its last state; without what is out of it already.
    std::string_view rest() const;
    // Hands that out before its time; the line goes on in what feed() or finish() return later.
    std::string take_rest();
    // The line is drawn again and again: its state now is not worth keeping.
    bool redrawn() const { return redrawn_; }
    // A piece of the current line is out.
    bool in_line() const { return in_line_; }

private:
    std::string last_states(std::string_view lines) const;
    void collapse_rest();

    CarriageReturns returns_;
    std::size_t limit_;
    std::string rest_;
    bool in_line_ = false;
    bool redrawn_ = false;
};

}  // namespace ddp::launcher
