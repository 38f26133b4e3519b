// What a worker writes, as lines. Input: a byte that says where it is cut, and what is written.
#include "launcher/console/screen_lines.hpp"
#include "fuzz/seeds.hpp"

#include <cstdlib>

namespace {

using ddp::launcher::ScreenLines;

void require(bool right) {
    if (!right) std::abort();
}

std::string lines_of(std::string_view text, std::size_t piece) {
    ScreenLines lines;
    std::string out;
    while (!text.empty()) {
        const std::string_view some = text.substr(0, piece);
        text.remove_prefix(some.size());
        out += lines.feed(some);
        for (const std::string_view row : lines.rows()) {
            require(row.find_first_of("\r\n") == row.npos);
        }
    }
    const std::string rest = lines.finish();
    require(rest.empty() || rest.back() == '\n');
    require(lines.rows().empty() && !lines.redrawn() && lines.finish().empty());
    return out + rest;
}

// As it came, with a newline at the end, but for a carriage return before one.
bool is_plain(std::string_view text) {
    return text.find('\r') == text.npos && text.find("\x1b[") == text.npos;
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    return {
        std::string("\1plain\nlines\r\nlast"),
        std::string("\3\router 0\n\r  inner 0\x1b[A\n\r  inner 1\x1b[A\router 1\n\r   \r\x1b[A\n"),
        std::string("\7one\ntwo\r\x1b[2K\x1b[1A\x1b[2Kone\ntwo\x1b[31m\n"),
        std::string("\2\r10 %\r100 %\n\r20 %\n\n\ntext\n")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const std::size_t piece = 1 + input.byte() % 16;
    const std::string text(input.rest());
    const std::string lines = lines_of(text, text.size() + 1);
    require(lines == lines_of(text, piece));
    if (is_plain(text)) require(lines == text + (text.empty() || text.back() == '\n' ? "" : "\n"));
    return 0;
}
