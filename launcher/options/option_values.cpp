// Numbers are read by from_chars: no blanks, no signs that are not a number's, no locale.
#include "launcher/options/option_values.hpp"

#include "contract/exit_status.hpp"
#include "contract/injection.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <optional>

namespace ddp::launcher {
namespace {

std::optional<int> read_int(std::string_view text, Limits limits) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    if (number < limits.low || number > limits.high) return std::nullopt;
    return number;
}

std::optional<std::uint64_t> read_bytes(std::string_view text, ByteLimits limits) {
    unsigned shift = 0;
    if (text.ends_with('K')) shift = 10;
    if (text.ends_with('M')) shift = 20;
    if (text.ends_with('G')) shift = 30;
    if (shift != 0) text.remove_suffix(1);
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end || number > limits.high >> shift) return std::nullopt;
    number <<= shift;
    return number >= limits.low ? std::optional(number) : std::nullopt;
}

std::optional<double> read_seconds(std::string_view text) {
    constexpr double max_seconds = 1e6;
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (error != std::errc{} || stop != end || !std::isfinite(number)) return std::nullopt;
    if (std::signbit(number) || number > max_seconds) return std::nullopt;
    return number;
}

// PyTorch's own tests write --rdzv-conf='...' without a shell that would take the quotes away.
std::string_view without_quotes(std::string_view text) {
    const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                        (text.front() == '\'' || text.front() == '"');
    return quoted ? text.substr(1, text.size() - 2) : text;
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == text.npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::optional<std::vector<int>> read_ranks(std::string_view text) {
    constexpr Limits limits{0, max_workers - 1};
    std::vector<int> ranks;
    for (const std::string_view part : split_at(text, ',')) {
        const std::size_t dash = part.find('-');
        const auto first = read_int(part.substr(0, dash), limits);
        const auto last = dash == part.npos ? first : read_int(part.substr(dash + 1), limits);
        if (!first || !last || *last < *first) return std::nullopt;
        for (int rank = *first; rank <= *last; ++rank) ranks.push_back(rank);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
}

std::optional<int> read_signal(std::string_view name) {
    const std::string whole = (name.starts_with("SIG") ? "" : "SIG") + std::string(name);
    for (int signal = 1; signal < NSIG; ++signal) {
        if (contract::signal_name(signal) == whole) return signal;
    }
    return std::nullopt;
}

// With something before it.
bool has_ending(std::string_view name, std::string_view ending) {
    return name.size() > ending.size() && name.ends_with(ending);
}

}  // namespace

void fail_value(const GivenValue& given, std::string_view allowed) {
    throw UsageError(std::string(given.label) + ": \"" + given.text + "\" is not " +
                     std::string(allowed));
}

int parse_int(const GivenValue& given, Limits limits) {
    if (const auto number = read_int(given.text, limits)) return *number;
    fail_value(given, "a whole number from " + std::to_string(limits.low) + " to " +
                          std::to_string(limits.high));
}

std::uint64_t parse_bytes(const GivenValue& given, ByteLimits limits) {
    if (const auto bytes = read_bytes(given.text, limits)) return *bytes;
    const auto in_mib = [](std::uint64_t bytes) { return std::to_string(bytes >> 20) + "M"; };
    fail_value(given, "a number of bytes from " + in_mib(limits.low) + " to " +
                          in_mib(limits.high) + ", with K, M or G for powers of 1024");
}

std::chrono::milliseconds parse_seconds(const GivenValue& given) {
    const auto seconds = read_seconds(given.text);
    if (!seconds) fail_value(given, "a number of seconds from 0 to 1000000");
    return std::chrono::milliseconds(std::llround(*seconds * 1000));
}

WantedStdin parse_stdin(const GivenValue& given) {
    if (given.text == "auto") return {StdinFor::automatic};
    if (given.text == "all") return {StdinFor::all};
    if (given.text == "none") return {StdinFor::none};
    if (const auto rank = read_int(given.text, {0, max_workers - 1})) {
        return {StdinFor::rank, *rank};
    }
    fail_value(given, "a whole number from 0 to " + std::to_string(max_workers - 1) +
                          " (a local rank), all or none");
}

bool parse_flag(const GivenValue& given) {
    if (given.text == "1") return true;
    if (given.text == "0") return false;
    fail_value(given, "0 or 1");
}

WorkerCount parse_worker_count(const GivenValue& given) {
    if (given.text == "cpu") return {CountOf::cpus};
    if (given.text == "gpu") return {CountOf::gpus};
    if (given.text == "auto") return {CountOf::gpus_else_cpus};
    if (const auto number = read_int(given.text, {1, max_workers})) {
        return {CountOf::number, *number};
    }
    fail_value(given,
               "a whole number from 1 to " + std::to_string(max_workers) + ", or gpu, cpu or auto");
}

NodeRange parse_node_range(const GivenValue& given) {
    const auto parts = split_at(given.text, ':');
    constexpr Limits any{1, std::numeric_limits<int>::max()};
    const auto low = read_int(parts.front(), any);
    const auto high = read_int(parts.back(), any);
    if (parts.size() > 2 || !low || !high || *low > *high) {
        fail_value(given, "N or MIN:MAX with 0 < MIN <= MAX");
    }
    return {.min = *low, .max = *high};
}

// A lease of less than a few beats would end by itself.
std::chrono::milliseconds parse_node_timeout(const GivenValue& given) {
    constexpr std::chrono::milliseconds least{1000};
    const auto time = parse_seconds(given);
    if (time < least) fail_value(given, "a number of seconds, at least 1");
    return time;
}

RendezvousBackend parse_rendezvous_backend(const GivenValue& given) {
    if (given.text.starts_with("etcd")) {
        fail_value(given,
                   "static or c10d: no other service is needed, ddp-launch on the endpoint's host "
                   "serves the job; with --serve-only, one that outlives every host of it");
    }
    return parse_choice<RendezvousBackend>(
        given, {{"static", RendezvousBackend::fixed}, {"c10d", RendezvousBackend::c10d}});
}

std::string parse_name(const GivenValue& given) {
    if (given.text.find('/') != given.text.npos || given.text == "." || given.text == "..") {
        fail_value(given, "a name without a slash");
    }
    return given.text;
}

StreamsOfRanks parse_streams(const GivenValue& given) {
    const auto read = [](std::string_view text) -> std::optional<Streams> {
        const auto number = read_int(text, {0, 3});
        return number ? std::optional(static_cast<Streams>(*number)) : std::nullopt;
    };
    if (const auto all = read(given.text)) return {*all, {}};
    StreamsOfRanks result;
    for (const std::string_view part : split_at(given.text, ',')) {
        const std::size_t colon = part.find(':');
        const auto rank = read_int(part.substr(0, colon), {0, max_workers - 1});
        const auto streams = colon == part.npos ? std::nullopt : read(part.substr(colon + 1));
        if (!rank || !streams || !result.listed.emplace(*rank, *streams).second) {
            fail_value(given,
                       "0 (none), 1 (stdout), 2 (stderr), 3 (both), or such a digit for each "
                       "local rank once: 0:3,1:2");
        }
    }
    return result;
}

std::vector<int> parse_ranks(const GivenValue& given) {
    if (auto ranks = read_ranks(given.text)) return *std::move(ranks);
    fail_value(given, "a list of ranks: 0,3 or 2-5");
}

void require_rank(const char* option, int rank, const char* kind, int workers) {
    if (rank < workers) return;
    throw UsageError(std::string(option) + ": " + std::to_string(rank) + " is no " + kind +
                     " of this job; they go from 0 to " + std::to_string(workers - 1));
}

std::vector<std::string> parse_texts(const GivenValue& given) {
    std::vector<std::string> texts(1);
    const std::string& text = given.text;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const bool comma = text[at] == ',';
        const bool escaped = comma && at + 1 < text.size() && text[at + 1] == ',';
        if (escaped) ++at;
        if (comma && !escaped) {
            texts.emplace_back();
        } else {
            texts.back() += text[at];
        }
    }
    for (std::string& one : texts) {
        const std::size_t end = one.find_last_not_of(' ');
        one.erase(end == one.npos ? 0 : end + 1);
        one.erase(0, std::min(one.find_first_not_of(' '), one.size()));
        if (one.empty()) fail_value(given, "a list of texts such as \"loss,error\": one is empty");
    }
    return texts;
}

std::vector<int> parse_signals(const GivenValue& given) {
    std::vector<int> signals;
    for (const std::string_view name : split_at(given.text, ',')) {
        const auto signal = read_signal(name);
        if (!signal) {
            fail_value(given,
                       "a list of signals: " +
                           (name.empty() ? "an empty name" : "\"" + std::string(name) + "\"") +
                           " is none; SIGTERM,SIGINT,SIGHUP,SIGQUIT is the default");
        }
        if (*signal == SIGKILL || *signal == SIGSTOP || *signal == SIGCHLD) {
            fail_value(given,
                       "a list of signals that can be handled: " + std::string(name) + " cannot");
        }
        if (std::find(signals.begin(), signals.end(), *signal) == signals.end()) {
            signals.push_back(*signal);
        }
    }
    return signals;
}

std::string parse_inject(const GivenValue& given) {
    try {
        contract::parse_injection(given.text);
    } catch (const UsageError& error) {
        throw UsageError(std::string(given.label) + ": " + error.what());
    }
    return std::string(given.text);
}

std::string parse_page_file(const GivenValue& given) {
    if (!has_ending(given.text, ".html") && !has_ending(given.text, ".htm")) {
        fail_value(given, "a file name that ends in .html; report.json is --log-dir's");
    }
    return std::string(given.text);
}

std::string parse_trace_file(const GivenValue& given) {
    if (!has_ending(given.text, ".json")) fail_value(given, "a file name that ends in .json");
    return std::string(given.text);
}

Wrap parse_wrap(const GivenValue& given) {
    constexpr const char* allowed =
        "RANKS:COMMAND, with RANKS such as 1, 0,3, 2-5 or all: --wrap='1:gdb --args'";
    const std::string_view text = given.text;
    const std::size_t colon = text.find(':');
    if (colon == text.npos) fail_value(given, allowed);
    Wrap wrap;
    if (text.substr(0, colon) != "all") {
        auto ranks = read_ranks(text.substr(0, colon));
        if (!ranks) fail_value(given, allowed);
        wrap.local_ranks = *std::move(ranks);
    }
    wrap.command = split_words(given, text.substr(colon + 1));
    if (wrap.command.empty() || wrap.command.front().empty()) fail_value(given, allowed);
    return wrap;
}

std::vector<std::string> parse_command(const GivenValue& given) {
    std::vector<std::string> words = split_words(given, given.text);
    if (words.empty() || words.front().empty()) fail_value(given, "a command, such as ssh -x");
    return words;
}

std::string parse_variable(const GivenValue& given) {
    const std::string_view name = std::string_view(given.text).substr(0, given.text.find('='));
    const bool is_name = !name.empty() && name.find_first_of(" \t\n") == name.npos;
    if (!is_name) fail_value(given, "NAME or NAME=VALUE");
    return given.text;
}

std::vector<std::string> split_words(const GivenValue& given, std::string_view text) {
    std::vector<std::string> words;
    bool in_word = false;
    char quote = '\0';
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        const bool blank = c == ' ' || c == '\t' || c == '\n';
        if (quote == '\0' && blank) {
            in_word = false;
            continue;
        }
        if (!in_word) words.emplace_back();
        in_word = true;
        // Within double quotes a backslash escapes only what would mean something there.
        const bool escapes = c == '\\' && quote != '\'' && at + 1 < text.size() &&
                             (quote == '\0' || std::strchr("\"\\$`", text[at + 1]) != nullptr);
        if (escapes) {
            words.back() += text[++at];
        } else if (quote == '\0' && (c == '\'' || c == '"')) {
            quote = c;
        } else if (c == quote) {
            quote = '\0';
        } else {
            words.back() += c;
        }
    }
    if (quote != '\0') fail_value(given, std::string("complete: a ") + quote + " is not closed");
    return words;
}

void apply_rendezvous_settings(const GivenValue& given, HostOptions& hosts) {
    constexpr std::array seconds_keys{"join_timeout", "last_call_timeout", "close_timeout",
                                      "read_timeout", "timeout"};
    for (const std::string_view setting : split_at(without_quotes(given.text), ',')) {
        const std::size_t equals = setting.find('=');
        const bool quote_left = setting.find_first_of("'\"") != setting.npos;
        if (quote_left || equals == setting.npos || equals == 0 || equals + 1 == setting.size()) {
            fail_value(given, "KEY=VALUE,KEY=VALUE");
        }
        const std::string_view key = setting.substr(0, equals);
        const std::string value(setting.substr(equals + 1));
        const bool in_seconds =
            std::find(seconds_keys.begin(), seconds_keys.end(), key) != seconds_keys.end();
        if (!in_seconds) continue;
        const auto seconds = read_seconds(value);
        if (!seconds) fail_value(given, "right: " + std::string(key) + " is a number of seconds");
        const std::chrono::milliseconds time(std::llround(*seconds * 1000));
        if (key == "join_timeout" || key == "timeout") hosts.join_timeout = time;
        if (key == "last_call_timeout") hosts.last_call = time;
    }
}

}  // namespace ddp::launcher
