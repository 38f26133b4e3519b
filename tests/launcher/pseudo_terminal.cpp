// Understands what LiveLines makes, and no more.
#include "launcher/pseudo_terminal.hpp"

#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace ddp::launcher::testing {
namespace {

struct Screen {
    std::vector<std::string> rows{""};
    std::size_t row = 0;
    std::size_t column = 0;

    void put(char c) {
        std::string& line = rows[row];
        if (line.size() < column + 1) line.resize(column + 1, ' ');
        line[column++] = c;
    }
    void go_down() {
        if (++row == rows.size()) rows.emplace_back();
    }
    void escape(const std::string& parameters, char final_byte) {
        if (final_byte == 'A') {
            row -= std::min<std::size_t>(row, std::strtoul(parameters.c_str(), nullptr, 10));
        } else if (final_byte == 'J') {
            rows[row].resize(std::min(rows[row].size(), column));
            rows.resize(row + 1);
        } else if (final_byte != 'm') {
            throw std::runtime_error("unexpected escape sequence");
        }
    }
};

}  // namespace

// The terminals of the tests do not add "\r" to "\n", so that a newline does it here.
std::string screen_of(const std::string& text) {
    Screen screen;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\n') {
            screen.go_down();
            screen.column = 0;
        } else if (text[at] == '\r') {
            screen.column = 0;
        } else if (text.compare(at, 2, "\x1b[") == 0) {
            const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
            if (end == text.npos) break;
            screen.escape(text.substr(at + 2, end - at - 2), text[end]);
            at = end;
        } else {
            screen.put(text[at]);
        }
    }
    std::string result;
    for (const std::string& row : screen.rows) {
        result += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
    }
    while (result.ends_with("\n\n")) result.pop_back();
    return result == "\n" ? "" : result;
}

}  // namespace ddp::launcher::testing
