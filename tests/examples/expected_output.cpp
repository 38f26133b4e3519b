#include "examples/expected_output.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <string_view>

namespace ddp::tests {
namespace {

// A line of the comment without its `//`; nothing after the comment's end.
std::optional<std::string> comment_line(std::istream& source) {
    std::string line;
    if (!std::getline(source, line) || !line.starts_with("//")) return std::nullopt;
    return line.substr(2);
}

std::size_t indent_of(const std::string& line) {
    return std::min(line.find_first_not_of(' '), line.size());
}

std::string without_ends(const std::string& line) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) return {};
    return line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
}

std::regex pattern_of(const std::string& expected) {
    static const std::regex special(R"([.^$|()\[\]{}*+?\\])");
    static const std::regex blanks(" +");
    static const std::regex word("<[^<> ]+>");
    std::string pattern = std::regex_replace(expected, special, R"(\$&)");
    pattern = std::regex_replace(pattern, word, "[^ ]+");
    return std::regex(" *" + std::regex_replace(pattern, blanks, " +") + " *");
}

bool matches(const std::string& line, const std::string& expected) {
    return std::regex_match(line, pattern_of(expected));
}

std::string in_quotes(const std::string& line) { return "\"" + line + "\""; }

using Lines = std::vector<std::string>;

// The expected lines, beginning with the first of `expected`, in this order.
std::string difference_in_order(const Lines& lines, const Lines& expected) {
    std::size_t at = 0;
    bool skips = false;
    for (const std::string& wanted : expected) {
        if (wanted == "...") {
            skips = true;
            continue;
        }
        while (skips && at < lines.size() && !matches(lines[at], wanted)) ++at;
        if (at == lines.size()) return "no line " + in_quotes(wanted);
        if (!matches(lines[at], wanted)) return in_quotes(lines[at]) + ", not " + in_quotes(wanted);
        skips = false;
        ++at;
    }
    if (!skips && at < lines.size()) return "beyond what is expected: " + in_quotes(lines[at]);
    return {};
}

// Lines that say what they mean first: a pattern must not take the line of another one.
std::string difference_in_any_order(Lines lines, Lines expected) {
    std::stable_partition(expected.begin(), expected.end(), [](const std::string& line) {
        return line.find('<') == std::string::npos;
    });
    for (const std::string& wanted : expected) {
        const auto found = std::ranges::find_if(
            lines, [&](const std::string& line) { return matches(line, wanted); });
        if (found == lines.end()) return "no line " + in_quotes(wanted);
        lines.erase(found);
    }
    return lines.empty() ? "" : "beyond what is expected: " + in_quotes(lines.front());
}

}  // namespace

std::vector<std::string> expected_output(const std::string& example, const std::string& label) {
    std::string path = DDP_EXAMPLES_SOURCE_DIR "/" + example + ".cpp";
    if (!std::filesystem::exists(path)) path = DDP_EXAMPLES_SOURCE_DIR "/" + example + ".c";
    std::ifstream source(path);
    Lines lines;
    std::optional<std::string> line = comment_line(source);
    while (line && without_ends(*line) != label + ":") line = comment_line(source);
    const std::size_t indent = line ? indent_of(*line) : 0;
    while (line && (line = comment_line(source)) && (line->empty() || indent_of(*line) > indent)) {
        lines.push_back(without_ends(*line));
    }
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    if (lines.empty()) {
        ADD_FAILURE() << path << ": no output below a line \"" << label << ":\" of its comment";
    }
    return lines;
}

std::string difference(const Lines& lines, const Lines& expected, LineOrder order) {
    switch (order) {
        case LineOrder::fixed:
            return difference_in_order(lines, expected);
        case LineOrder::any:
            break;
    }
    return difference_in_any_order(lines, expected);
}

void expect_output(const ProgramResult& result, const Lines& expected, LineOrder order) {
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(difference(lines_of(result.out), expected, order), "") << result.out;
}

}  // namespace ddp::tests
