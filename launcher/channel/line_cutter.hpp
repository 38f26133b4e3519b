// Cuts a worker's output, which arrives in any pieces, into whole lines, so that lines of two
// workers never mix. Every byte comes out once and in order, with these exceptions: a line longer
// than the limit comes out in pieces, and an unterminated last line gets the newline that it lacks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::launcher {

class LineCutter {
public:
    static constexpr std::size_t default_limit = std::size_t{1} << 20;

    explicit LineCutter(std::size_t limit = default_limit) : limit_(limit) {}

    // Takes bytes; returns what is complete: lines with their newlines, maybe none.
    std::string feed(std::string_view bytes);
    // At end of file: what is left, with a newline.
    std::string finish();

    // A piece of the current line is out.
    bool in_line() const { return in_line_; }

private:
    std::size_t limit_;
    std::string rest_;
    bool in_line_ = false;
};

}  // namespace ddp::launcher
