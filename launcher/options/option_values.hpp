// From the text of an option's value to the value. Each function throws UsageError: one line with
// the option or variable, the text, and what is allowed there.
#pragma once

#include "launcher/options/option_table.hpp"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::launcher {

[[noreturn]] void fail_value(const GivenValue& given, std::string_view allowed);

struct Limits {
    int low;
    int high;
};
int parse_int(const GivenValue& given, Limits limits);
struct ByteLimits {  // whole MiB
    std::uint64_t low;
    std::uint64_t high;
};
// "1048576", "512K", "256M", "2G": powers of 1024
std::uint64_t parse_bytes(const GivenValue& given, ByteLimits limits);
// "2", "0.25"
std::chrono::milliseconds parse_seconds(const GivenValue& given);
// "1", "all", "none", "auto"
struct WantedStdin {
    StdinFor who;
    std::optional<int> rank = {};
};
WantedStdin parse_stdin(const GivenValue& given);
bool parse_flag(const GivenValue& given);
std::string parse_inject(const GivenValue& given);      // as a contract::Injection
std::string parse_page_file(const GivenValue& given);   // FILE.html
std::string parse_trace_file(const GivenValue& given);  // FILE.json
WorkerCount parse_worker_count(const GivenValue& given);
// "2", "1:4": 0 < min <= max
struct NodeRange {
    int min = 1;
    int max = 1;
    friend bool operator==(const NodeRange&, const NodeRange&) = default;
};
NodeRange parse_node_range(const GivenValue& given);
std::chrono::milliseconds parse_node_timeout(const GivenValue& given);
RendezvousBackend parse_rendezvous_backend(const GivenValue& given);
std::string parse_name(const GivenValue& given);  // becomes part of a path: no slash

// "0".."3", or "0:3,12:1"
StreamsOfRanks parse_streams(const GivenValue& given);
// "0,3", "2-5", "0,4-6"; sorted, each once
std::vector<int> parse_ranks(const GivenValue& given);
// Throws UsageError for one that is not below the number of workers. `kind`: "rank".
void require_rank(const char* option, int rank, const char* kind, int workers);
// "apple,orange": texts between commas, without blanks around them; ",," is a comma in one.
std::vector<std::string> parse_texts(const GivenValue& given);
std::vector<int> parse_signals(const GivenValue& given);
// "1:gdb --args"
Wrap parse_wrap(const GivenValue& given);
// "ssh -x": split as below, with at least one word.
std::vector<std::string> parse_command(const GivenValue& given);
// "NAME", "NAME=value"
std::string parse_variable(const GivenValue& given);
// Splits as a shell does: blanks, quotes, backslashes; no expansion.
std::vector<std::string> split_words(const GivenValue& given, std::string_view text);

// "join_timeout=60,is_host=1", in quotes or not. Keys without a meaning here are left alone, but a
// typo is told.
void apply_rendezvous_settings(const GivenValue& given, HostOptions& hosts);

// One of a few words.
template <class Value>
Value parse_choice(const GivenValue& given,
                   std::initializer_list<std::pair<const char*, Value>> choices) {
    std::string allowed;
    for (const auto& [word, value] : choices) {
        if (given.text == word) return value;
        allowed += (allowed.empty() ? "" : " or ") + std::string(word);
    }
    fail_value(given, allowed);
}

}  // namespace ddp::launcher
