#include "launcher/console/line_prefix.hpp"

#include <array>
#include <cstdlib>
#include <optional>

namespace ddp::launcher {
namespace {

bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::optional<std::string> value_of(std::string_view name, const PrefixValues& values) {
    if (name == "role_name") return values.role_name;
    if (name == "rank") return std::to_string(values.rank);
    if (name == "local_rank") return std::to_string(values.local_rank);
    if (name == "hostname") return values.hostname;
    if (name == "pid") return std::to_string(values.pid);
    return std::nullopt;
}

// What stands at a dollar sign: how many bytes, and the name in it.
struct Reference {
    std::size_t bytes = 1;
    std::string_view name;
};

Reference reference_at(std::string_view text) {
    if (text.size() > 1 && text[1] == '{') {
        const std::size_t end = text.find('}');
        if (end == text.npos) return {};
        return {end + 1, text.substr(2, end - 2)};
    }
    std::size_t end = 1;
    while (end < text.size() && is_name_char(text[end])) ++end;
    return {end, text.substr(1, end - 1)};
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace

std::string expand_prefix(std::string_view prefix_template, const PrefixValues& values) {
    std::string result;
    for (std::string_view left = prefix_template; !left.empty();) {
        const std::size_t dollar = left.find('$');
        result.append(left.substr(0, dollar));
        if (dollar == left.npos) break;
        left.remove_prefix(dollar);
        if (left.starts_with("$$")) {
            result += '$';
            left.remove_prefix(2);
            continue;
        }
        const Reference reference = reference_at(left);
        const auto value = value_of(reference.name, values);
        result.append(value ? std::string_view(*value) : left.substr(0, reference.bytes));
        left.remove_prefix(reference.bytes);
    }
    return result;
}

std::string coloured(std::string_view prefix, int rank) {
    // Cyan, green, yellow, magenta, blue, bright cyan: red is for errors.
    constexpr std::array colours{"36", "32", "33", "35", "34", "96"};
    const std::string colour = colours[static_cast<std::size_t>(rank) % colours.size()];
    return "\x1b[" + colour + "m" + std::string(prefix) + "\x1b[0m";
}

bool colours_wanted() { return variable("NO_COLOR").empty() && terminal_can_redraw(); }

bool terminal_can_redraw() {
    const std::string kind = variable("TERM");
    return !kind.empty() && kind != "dumb";
}

}  // namespace ddp::launcher
