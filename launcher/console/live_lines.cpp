#include "launcher/console/live_lines.hpp"

namespace ddp::launcher {
namespace {

// The length of an escape sequence (ECMA-48: CSI, parameters, a final byte) at the start; 0: none.
std::size_t escape_bytes(std::string_view text) {
    if (!text.starts_with("\x1b[")) return 0;
    std::size_t end = 2;
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
    return end < text.size() ? end + 1 : text.size();
}

// Only colours and the like; others would move the cursor.
bool is_colour(std::string_view escape) { return !escape.empty() && escape.back() == 'm'; }

}  // namespace

std::string LiveLines::erase() {
    if (rows_ == 0) return {};
    std::string result = "\r";
    if (rows_ > 1) result += "\x1b[" + std::to_string(rows_ - 1) + "A";
    rows_ = 0;
    return result + "\x1b[J";
}

std::string LiveLines::draw(const std::vector<std::string>& lines, std::size_t columns) {
    std::string result;
    for (const std::string& line : lines) {
        if (!result.empty()) result += "\r\n";
        result += cut_to_columns(line, columns);
    }
    rows_ = lines.size();
    return result;
}

std::string cut_to_columns(std::string_view line, std::size_t columns) {
    std::string result;
    bool in_colour = false;
    for (std::size_t used = 0; !line.empty();) {
        if (const std::size_t escape = escape_bytes(line); escape > 0) {
            const std::string_view sequence = line.substr(0, escape);
            if (is_colour(sequence)) {
                result.append(sequence);
                in_colour = sequence != "\x1b[0m" && sequence != "\x1b[m";
            }
            line.remove_prefix(escape);
            continue;
        }
        const auto byte = static_cast<unsigned char>(line.front());
        const bool continues_character = (byte & 0xc0U) == 0x80U;
        if (!continues_character && used++ == columns) break;
        const bool control = byte < 0x20U || byte == 0x7fU;
        result += control ? ' ' : line.front();
        line.remove_prefix(1);
    }
    return in_colour ? result + "\x1b[0m" : result;
}

}  // namespace ddp::launcher
