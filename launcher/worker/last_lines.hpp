// The last lines that a worker wrote, for the report of its failure: at most 20 lines and 4 KiB,
// each as a terminal would show it last, without the earlier states of progress bars.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace ddp::launcher {

class LastLines {
public:
    static constexpr std::size_t max_lines = 20;
    static constexpr std::size_t max_bytes = 4096;

    // Bytes as they were written, in any pieces. Looks only at what can still count.
    void feed(std::string_view bytes);
    // The lines, oldest first, joined by newlines; an unfinished one is the last.
    std::string text() const;
    bool empty() const { return lines_.empty() && open_.empty(); }

private:
    void add_to_open(std::string_view part);
    void close_open();

    std::deque<std::string> lines_;
    std::size_t bytes_ = 0;  // in lines_
    std::string open_;       // the line that has not ended
};

}  // namespace ddp::launcher
