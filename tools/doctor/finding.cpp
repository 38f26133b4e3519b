#include "doctor/finding.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ddp::doctor {
namespace {

std::string padded(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

std::string count_of(std::ptrdiff_t count, const char* one, const char* many) {
    return std::to_string(count) + (count == 1 ? one : many);
}

}  // namespace

const char* to_string(Level level) {
    switch (level) {
        case Level::ok:
            return "ok";
        case Level::note:
            return "note";
        case Level::warn:
            return "warn";
        case Level::fail:
            return "FAIL";
    }
    return "?";
}

bool is_fit(std::span<const Finding> findings) {
    return std::ranges::none_of(findings, [](const auto& one) { return one.level == Level::fail; });
}

std::string as_text(std::span<const Finding> findings, const std::string& when_fit) {
    constexpr std::size_t level_width = 6;
    constexpr std::size_t check_width = 14;
    std::string text;
    for (const Finding& one : findings) {
        text += padded(to_string(one.level), level_width) + padded(one.check, check_width);
        text += one.says + '\n';
        if (!one.remedy.empty()) {
            text += std::string(level_width + check_width, ' ') + "do: " + one.remedy + '\n';
        }
    }
    const auto count = [&](Level level) {
        return std::ranges::count(findings, level, &Finding::level);
    };
    const auto worth_a_look = count(Level::warn);
    text += "ddp-doctor: ";
    text += is_fit(findings) ? when_fit : count_of(count(Level::fail), " thing", " things");
    if (!is_fit(findings)) text += " will make jobs fail";
    if (worth_a_look > 0)
        text += ", " + count_of(worth_a_look, " thing is", " things are") + " worth a look";
    return text + '\n';
}

std::string as_json(std::span<const Finding> findings) {
    nlohmann::ordered_json report{{"fit", is_fit(findings)},
                                  {"findings", nlohmann::ordered_json::array()}};
    for (const Finding& one : findings) {
        report["findings"].push_back(
            {{"check", one.check},
             {"level", one.level == Level::fail ? "fail" : to_string(one.level)},
             {"says", one.says},
             {"remedy", one.remedy}});
    }
    // What other programs have said may be no UTF-8.
    return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

}  // namespace ddp::doctor
