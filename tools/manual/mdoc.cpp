#include "manual/mdoc.hpp"

#include <ddp/error.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <sstream>

namespace ddp::manual {
namespace {

std::string word_of_text(const std::string& word) {
    std::string result = word.front() == '.' || word.front() == '\'' ? "\\&" : "";
    for (const char c : word) {
        if (c == '\\') {
            result += "\\e";
        } else if (c == '-' && word.front() == '-') {  // to be typed
            result += "\\-";
        } else {
            result += c;
        }
    }
    return result;
}

}  // namespace

std::string date_of(const std::string& date) {
    constexpr std::array months{"January",   "February", "March",    "April",
                                "May",       "June",     "July",     "August",
                                "September", "October",  "November", "December"};
    int year = 0;
    unsigned month = 0;
    unsigned day = 0;
    std::istringstream from(date);
    char dash = 0;
    from >> year >> dash >> month >> dash >> day;
    // Also that it was written so, with nothing before or behind it.
    const std::chrono::year_month_day whole{std::chrono::year{year}, std::chrono::month{month},
                                            std::chrono::day{day}};
    std::array<char, 16> written{};
    std::snprintf(written.data(), written.size(), "%04d-%02u-%02u", year, month, day);
    if (year < 1 || !whole.ok() || date != written.data()) {
        throw Error("\"" + date + "\" is no date; write one as 2026-11-30");
    }
    return std::string(months.at(month - 1)) + " " + std::to_string(day) + ", " +
           std::to_string(year);
}

std::string prose(const std::string& words) {
    constexpr std::size_t width = 78;
    std::string all;
    std::string line;
    std::istringstream from(words);
    for (std::string word; from >> word;) {
        word = word_of_text(word);
        const bool ends = line.ends_with('.') && !line.ends_with("..");
        if (!line.empty() && (ends || line.size() + 1 + word.size() > width)) {
            all += line + "\n";
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    return all + line + "\n";
}

}  // namespace ddp::manual
