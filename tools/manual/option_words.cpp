#include "manual/manual.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <utility>

namespace ddp::manual {

using launcher::OptionSpec;

namespace {

std::vector<std::string> parts_of(std::string_view value) {
    std::vector<std::string> parts(1);
    for (const char c : value) {
        if (c == '|') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

// A word to be typed as it is, "on" or "USR1", and no name of what varies: "N", "HOST[:N],...".
bool is_literal(const std::string& part) {
    const auto is_of_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; };
    const auto is_small = [](unsigned char c) {
        return std::islower(c) != 0 || std::isdigit(c) != 0;
    };
    return std::ranges::all_of(part, is_of_word) && std::ranges::any_of(part, is_small);
}

}  // namespace

ValueWords words_of(const OptionSpec& option) {
    using Kind = ValueWords::Kind;
    if (option.is_flag()) return {Kind::flag};
    const std::string_view value = option.value;
    constexpr std::array<std::pair<std::string_view, Kind>, 5> beginnings{{
        {"FILE", Kind::file},
        {"PREFIX", Kind::file},
        {"DIR", Kind::folder},
        {"COMMAND", Kind::command},
        {"HOST", Kind::host},
    }};
    for (const auto& [beginning, kind] : beginnings) {
        if (value.starts_with(beginning)) return {kind};
    }
    ValueWords words{Kind::choice, parts_of(value)};
    std::erase_if(words.choices, [](const std::string& part) { return !is_literal(part); });
    if (words.choices.empty()) words.kind = Kind::anything;
    return words;
}

std::vector<const OptionSpec*> offered_options() {
    std::vector<const OptionSpec*> offered;
    for (const OptionSpec& option : launcher::option_table()) {
        if (option.apply != nullptr) offered.push_back(&option);
    }
    return offered;
}

std::string escaped(std::string_view text, std::string_view characters, std::string_view escape) {
    std::string result;
    for (const char c : text) {
        if (characters.find(c) != characters.npos) result += escape;
        result += c;
    }
    return result;
}

std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

std::string joined(const std::vector<std::string>& words, const char* between) {
    std::string result;
    for (const std::string& word : words) result += (result.empty() ? "" : between) + word;
    return result;
}

std::string filled(std::string_view text, const std::map<std::string, std::string>& parts) {
    std::string whole(text.substr(1));
    for (const auto& [mark, part] : parts) {
        const std::string_view lines(part.data(),
                                     part.ends_with('\n') ? part.size() - 1 : part.size());
        for (std::size_t at = 0; (at = whole.find(mark, at)) != whole.npos; at += lines.size()) {
            whole.replace(at, mark.size(), lines);
        }
    }
    return whole;
}

}  // namespace ddp::manual
