#include "manual/mdoc.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

namespace ddp::manual {
namespace {

constexpr std::string_view begin_of_usage = "usage: ";
constexpr std::string_view begin_of_options = "options:";

std::string upper_case(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
    return text;
}

// "--json FILE" and "--json=FILE" in mdoc's words.
std::string option_words(std::string_view option) {
    const std::size_t end = std::min(option.find_first_of(" ="), option.size());
    std::string words = ".Fl Fl " + std::string(option.substr(2, end - 2));
    if (end == option.size()) return words;
    return words + (option[end] == '=' ? " Ns = Ns Ar " : " Ar ") +
           std::string(option.substr(end + 1));
}

// A command line: its program, options, what is to be replaced (in capitals), and others.
std::string usage_line(const std::string& line) {
    std::istringstream from(line);
    std::string word;
    from >> word;
    std::string all = ".Nm " + word + "\n";
    while (from >> word) {
        if (word.starts_with("--")) {
            all += option_words(word) + "\n";
        } else if (word.starts_with('[') && word.ends_with(']')) {
            all += ".Op Ar " + word.substr(1, word.size() - 2) + "\n";
        } else {
            all += (word == upper_case(word) ? ".Ar " : ".Cm ") + word + "\n";
        }
    }
    return all;
}

// Of the option table: an option with the first of its words, or more words. Words begin at one
// column in all lines.
std::string option_items(const std::vector<std::string>& lines) {
    std::size_t column = 0;
    for (const std::string& line : lines) {
        const std::size_t gap = line.find("  ", line.find_first_not_of(' '));
        if (column == 0 && gap != line.npos) column = line.find_first_not_of(' ', gap);
    }
    std::string all = ".Bl -tag -width Ds\n";
    std::string words;
    const auto end_item = [&] {
        if (!words.empty()) all += prose(words + (words.ends_with('.') ? "" : "."));
        words.clear();
    };
    for (const std::string& line : lines) {
        // A longer option has a line to itself.
        const bool is_long = line.size() > column && column > 0 && line[column - 1] != ' ';
        const std::size_t end = is_long ? line.size() : std::min(column, line.size());
        std::string option = line.substr(0, end);
        option.erase(option.find_last_not_of(' ') + 1);
        option.erase(0, option.find_first_not_of(' '));
        if (!option.empty()) {
            end_item();
            all += ".It " + option_words(option).substr(1) + "\n";
        }
        if (line.size() > end) words += (words.empty() ? "" : " ") + line.substr(end);
        words.erase(words.find_last_not_of(' ') + 1);
    }
    end_item();
    return all + ".El\n";
}

}  // namespace

std::string help_page(const std::string& program, const std::string& summary, std::string_view help,
                      const std::string& date) {
    std::string synopsis;
    std::string description;
    std::vector<std::string> options;
    enum class In { text, usage, table } in = In::text;
    std::string paragraph;
    const auto end_paragraph = [&] {
        if (!paragraph.empty()) {
            description += (description.empty() ? "" : ".Pp\n") + prose(paragraph);
        }
        paragraph.clear();
    };
    std::istringstream lines{std::string(help)};
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) {
            end_paragraph();
            in = In::text;
        } else if (line.starts_with(begin_of_usage)) {
            in = In::usage;
            synopsis += usage_line(line.substr(begin_of_usage.size()));
        } else if (line == begin_of_options) {
            in = In::table;
        } else if (in == In::usage) {
            synopsis += usage_line(line);
        } else if (in == In::table) {
            options.push_back(line);
        } else {
            paragraph += line + " ";
        }
    }
    end_paragraph();
    if (synopsis.empty()) throw Error(program + " --help shows no usage");
    return ".Dd " + date_of(date) + "\n.Dt " + upper_case(program) + " 1\n.Os\n.Sh NAME\n.Nm " +
           program + "\n.Nd " + summary + "\n.Sh SYNOPSIS\n" + synopsis + ".Sh DESCRIPTION\n" +
           description + ".Sh OPTIONS\n" + option_items(options) +
           ".Sh SEE ALSO\n.Xr ddp-launch 1\n";
}

}  // namespace ddp::manual
