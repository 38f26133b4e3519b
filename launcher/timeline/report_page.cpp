#include "launcher/timeline/report_page.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <string_view>

namespace ddp::launcher {
namespace {

using nlohmann::json;

constexpr std::int64_t tick = 100;  // nanoseconds
constexpr int did_not_end = 8;

std::string text_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// In a page "<" could begin "</script>"; in JSON it only stands in texts.
std::string without_tags(std::string_view text) {
    std::string safe;
    safe.reserve(text.size());
    for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
    return safe;
}

template <class Value>
void add_column(std::string& text, const char* name, const std::vector<TimelineItem>& items,
                const Value& value_of) {
    text += std::string(",\"") + name + "\":[";
    char digits[24];
    for (const TimelineItem& item : items) {
        const auto end = std::to_chars(digits, digits + sizeof digits, value_of(item)).ptr;
        text.append(digits, end);
        text += ',';
    }
    if (!items.empty()) text.pop_back();
    text += ']';
}

// Arrays by hand, as there may be a million activities.
std::string text_of(const RankTimeline& rank, std::int64_t began) {
    const auto ticks = [&](std::int64_t time) { return (time - began) / tick; };
    std::string text = text_of({{"rank", rank.rank},
                                {"host", rank.host},
                                {"pid", rank.pid},
                                {"started", ticks(rank.started)},
                                {"ended", ticks(rank.ended)},
                                {"end", rank.end},
                                {"joined", rank.has_joined},
                                {"lost", rank.lost}});
    text.pop_back();
    add_column(text, "what", rank.items, [](const TimelineItem& item) {
        return static_cast<int>(item.what) + (item.has_ended ? 0 : did_not_end);
    });
    std::int64_t before = ticks(rank.started);
    add_column(text, "start", rank.items, [&](const TimelineItem& item) {
        const std::int64_t since = ticks(item.started) - before;
        before = ticks(item.started);
        return since;
    });
    add_column(text, "length", rank.items,
               [&](const TimelineItem& item) { return ticks(item.ended) - ticks(item.started); });
    add_column(text, "name", rank.items, [](const TimelineItem& item) { return item.name; });
    add_column(text, "group", rank.items, [](const TimelineItem& item) { return item.group; });
    add_column(text, "number", rank.items, [](const TimelineItem& item) {
        return static_cast<std::int64_t>(item.number);  // a step may be any
    });
    return text + "}";
}

std::string text_of(const JobTimeline& timeline) {
    std::string text = "[";
    for (const AttemptTimeline& attempt : timeline.attempts()) {
        if (text.size() > 1) text += ",\n";
        text += text_of({{"attempt", attempt.attempt}, {"text", attempt.text}});
        text.back() = ',';
        text += "\"ranks\":[";
        for (std::size_t i = 0; i < attempt.ranks.size(); ++i) {
            text += (i == 0 ? "" : ",\n") + text_of(attempt.ranks[i], timeline.began());
        }
        text += "]}";
    }
    return text + "]";
}

}  // namespace

std::string report_page(const JobTimeline& timeline, const PageFacts& facts) {
    json groups = json::array();
    for (const TimelineGroup& group : timeline.groups()) {
        groups.push_back({{"size", group.id == 0 ? 0 : group.size}, {"gpu", group.on_gpu}});
    }
    std::string data = text_of({{"format", 1},
                                {"command", facts.command},
                                {"run_id", facts.run_id},
                                {"names", timeline.names()},
                                {"groups", groups}});
    data.pop_back();
    data += ",\n\"report\":" + (facts.report_json.empty() ? "null" : facts.report_json) +
            ",\n\"attempts\":" + text_of(timeline) + "}";
    const std::string_view frame = report_html;
    const auto until = [&](std::string_view mark) { return frame.find(mark); };
    const std::size_t style = until("<!--style-->");
    const std::size_t script = until("<!--script-->");
    std::string page(frame.substr(0, style));
    page += "<style>\n" + std::string(report_css) + "</style>";
    page += frame.substr(style, script - style);
    page += R"(<script type="application/json" id="data">)" + without_tags(data) + "</script>\n";
    page += "<script>\n" + std::string(report_js) + "</script>";
    return page += frame.substr(script);
}

}  // namespace ddp::launcher
