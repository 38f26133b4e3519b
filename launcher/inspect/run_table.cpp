#include "launcher/inspect/run_table.hpp"

#include "launcher/plan/job_plan.hpp"
#include "launcher/report/failure_report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace ddp::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t most_of_command = 120;

// Letters of any language, but nothing that a terminal obeys: C0 and C1, the latter as in UTF-8.
std::string harmless(std::string text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool is_c1 =
            byte >= 0x80 && byte < 0xa0 && i > 0 && static_cast<unsigned char>(text[i - 1]) == 0xc2;
        if ((byte < 0x20 && byte != '\n') || byte == 0x7f || is_c1) text[i] = '?';
    }
    return text;
}

std::string one_line(const json& text) {
    std::string line = text.get<std::string>();
    std::ranges::replace(line, '\n', '?');
    return line;
}

// A whole number, whatever stands there.
std::string whole(const json& number) {
    if (!number.is_number_integer()) throw json::type_error::create(302, "no number", &number);
    return std::to_string(number.get<std::int64_t>());
}

std::string in_words(double seconds) {
    const double ms = std::clamp(seconds, 0.0, 1e9) * 1000;
    return describe_time(std::chrono::milliseconds(std::llround(ms)));
}

std::string with_digits(double value, int digits) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%.*f", digits, std::clamp(value, -1e15, 1e15));
    return text.data();
}

std::string percent(const json& share) {
    return share.is_null() ? "-" : with_digits(share.get<double>() * 100, 0) + " %";
}

std::string size_in_words(const json& size) {
    constexpr double mib = 1 << 20;
    constexpr double gib = 1 << 30;
    if (size.is_null()) return "-";
    const auto bytes = size.get<double>();
    if (bytes < gib) return with_digits(bytes / mib, 0) + " MiB";
    return with_digits(bytes / gib, 1) + " GiB";
}

std::string call_of(const json& rank) {
    std::string text = one_line(rank.at("call"));
    const json& since = rank.at("seconds_since_call");
    const std::string system_call = one_line(rank.value("system_call", json("")));
    const std::string sleeps = system_call.empty() ? "" : "; sleeps in " + system_call;
    if (text.empty()) return one_line(rank.at("phase")) + sleeps;
    if (since.is_null()) return text + sleeps;
    const std::string time = in_words(since.get<double>());
    return text + (text.starts_with("in ") ? ", for " + time : ", " + time + " ago" + sleeps);
}

using Row = std::vector<std::string>;

// In documents of a launcher that knows no others all are.
bool is_here(const json& rank) { return rank.value("is_here", true); }

// `of_hosts`: with the rank's host.
Row row_of(const json& rank, bool of_hosts) {
    const std::string step = whole(rank.at("step"));
    const auto rate = rank.at("steps_per_second").get<double>();
    const bool has_ended = !rank.at("end").is_null();
    const std::string checkpoint = rank.at("at_checkpoint").get<bool>() ? "at a checkpoint, " : "";
    Row row{whole(rank.at("rank")),
            whole(rank.at("pid")),
            one_line(rank.at(has_ended ? "end" : "state")),
            step == "0" ? "-" : step,
            rate <= 0 || has_ended ? "-" : with_digits(rate, rate < 10 ? 2 : 1),
            percent(rank.at("share_in_calls")),
            percent(rank.at("cpu_share")),
            size_in_words(rank.at("resident_bytes")),
            checkpoint + call_of(rank)};
    if (of_hosts) row.insert(row.begin() + 1, one_line(rank.at("host")));
    return row;
}

// Numbers to the right, words to the left. The first row has the names.
std::string table_of(const std::vector<Row>& rows) {
    constexpr std::array words{"host", "process", "last call"};
    std::vector<bool> is_word;
    for (const std::string& name : rows.front()) {
        is_word.push_back(std::ranges::find(words, name) != words.end());
    }
    std::vector<std::size_t> widths(is_word.size());
    for (const Row& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const Row& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string space(widths[i] - row[i].size(), ' ');
            line += (i == 0 ? "" : "  ") + (is_word[i] ? row[i] + space : space + row[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string command_of(const json& run) {
    std::string command;
    for (const json& word : run.at("command")) {
        command += (command.empty() ? "" : " ") + in_shell_quotes(one_line(word));
    }
    if (command.empty()) return "(a coordinator without workers)";
    if (command.size() > most_of_command) command = command.substr(0, most_of_command) + "...";
    return command;
}

std::string head_of(const json& run) {
    const std::string time = in_words(run.at("seconds").get<double>());
    const json& exit_code = run.at("exit_code");
    std::string text = command_of(run) + "\n";
    text += run.at("state") == "running" ? "running for " + time : "ended after " + time;
    if (!exit_code.is_null()) text += ", exit code " + whole(exit_code);
    text += "; attempt " + whole(run.at("attempt")) + " of " + whole(run.at("attempts")) +
            ", host " + one_line(run.at("host")) + ", run " + one_line(run.at("run_id")) +
            ", launcher pid " + whole(run.at("launcher_pid"));
    const std::string shown = std::to_string(run.at("ranks").size());
    const std::string all = whole(run.at("world_size"));
    if (shown != all) {
        const bool has_asked = run.value("has_asked_hosts", false);
        text += "\n" + shown + " of the job's " + all + " ranks are " +
                (has_asked ? "shown; of the others their hosts tell nothing" : "on this host");
    }
    return text + "\n";
}

}  // namespace

bool is_run(const json& document) {
    try {
        return !run_table(document).empty();
    } catch (const json::exception&) {
        return false;
    }
}

void settle_cpu_shares(const json& earlier, json& later) {
    std::map<std::int64_t, const json*> before;
    for (const json& rank : earlier.at("ranks")) {
        before.emplace(rank.at("rank").get<std::int64_t>(), &rank);
    }
    const auto seconds_of = [](const json& rank, const char* name) {
        const json value = rank.value(name, json());
        return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
    };
    for (json& rank : later.at("ranks")) {
        const auto found = before.find(rank.at("rank").get<std::int64_t>());
        if (found == before.end() || found->second->at("pid") != rank.at("pid")) continue;
        const json& was = *found->second;
        const auto used_before = seconds_of(was, "cpu_seconds");
        const auto used = seconds_of(rank, "cpu_seconds");
        const auto read_before = seconds_of(was, "read_seconds");
        const auto read = seconds_of(rank, "read_seconds");
        if (!used || !used_before || !read || !read_before) continue;
        if (*read > *read_before && *used >= *used_before) {
            rank["cpu_share"] = (*used - *used_before) / (*read - *read_before);
        }
    }
}

std::string run_table(const json& run) {
    const json& ranks = run.at("ranks");
    const bool of_hosts = !std::ranges::all_of(ranks, is_here);
    std::vector<Row> rows{
        {"rank", "pid", "process", "step", "steps/s", "in calls", "CPU", "memory", "last call"}};
    if (of_hosts) rows.front().insert(rows.front().begin() + 1, "host");
    for (const json& rank : ranks) rows.push_back(row_of(rank, of_hosts));
    std::string text = head_of(run) + "\n" + table_of(rows);
    const json& hang = run.at("hang");
    const json slow = run.value("slow", json());
    const std::string report =
        run.at("report").is_null() ? "" : run.at("report").get<std::string>();
    if (!report.empty()) {
        text += "\n" + report + "\n";  // which tells of it, too
    } else if (!hang.is_null()) {
        text += "\n" + hang.at("text").get<std::string>() + "\n";
    }
    if (!slow.is_null()) text += "\n" + slow.at("text").get<std::string>() + "\n";
    return harmless(std::move(text));
}

}  // namespace ddp::launcher
