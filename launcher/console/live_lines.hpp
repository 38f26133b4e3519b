// The lines at the bottom of a terminal that are drawn again and again: lines that workers have not
// ended yet, progress bars among them, and the status line. Only makes the bytes; a line that would
// wrap is cut, so that erasing finds what drawing made.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

class LiveLines {
public:
    bool drawn() const { return rows_ > 0; }
    // Puts the cursor where the first line began and clears from there on.
    std::string erase();
    // After erase(). Lines may have escape sequences in them, but no control characters that move
    // the cursor; those become spaces.
    std::string draw(const std::vector<std::string>& lines, std::size_t columns);

private:
    std::size_t rows_ = 0;
};

// The first `columns` columns of a line: escape sequences take none, a UTF-8 character takes one.
std::string cut_to_columns(std::string_view line, std::size_t columns);

}  // namespace ddp::launcher
