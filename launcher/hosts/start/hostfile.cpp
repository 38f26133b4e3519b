// What the launchers named here take was tried with Open MPI 4.1.4, MPICH 4.0.2 (hydra) and
// libslurm 22.05.
#include "launcher/hosts/start/hostfile.hpp"

#include "base/printable.hpp"
#include "launcher/options/option_values.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <set>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::string_view blanks = " \t\r\v\f";
constexpr std::string_view digits = "0123456789";
constexpr std::string_view name_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

// A part of the text and what a message calls its place: "hosts.txt:3", "--hosts, entry 2".
struct Entry {
    std::string place;
    std::string_view text;
};

std::string in_quotes(std::string_view text) {
    constexpr std::size_t most = 80;
    return "\"" + base::printable(text, most) + (text.size() > most ? "..." : "") + "\"";
}

[[noreturn]] void fail(const Entry& entry, const std::string& problem) {
    throw UsageError(entry.place + ": " + problem);
}

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Takes a word off the front: up to a blank or one of `ends`.
std::string_view take_word(std::string_view& text, std::string_view ends = {}) {
    std::size_t end = 0;
    while (end < text.size() && blanks.find(text[end]) == blanks.npos &&
           ends.find(text[end]) == ends.npos) {
        ++end;
    }
    const std::string_view word = text.substr(0, end);
    text = trimmed(text.substr(end));
    return word;
}

// Other launchers' words for what is said to ddp-launch in another way.
constexpr std::array<std::pair<std::string_view, const char*>, 8> words_of_others{{
    {"binding", "leave it out; --wrap='all:numactl ...' pins workers"},
    {"count", "write slots=N"},
    {"cpu", "write slots=N"},
    {"ifname", "leave it out and write the address that the host has at that interface"},
    {"user", "leave it out and set the user in ~/.ssh/config"},
    {"username", "leave it out and set the user in ~/.ssh/config"},
    {"port", "leave it out and set the port in ~/.ssh/config"},
    {"gpus", "write slots=N"},
}};

int parse_slots(const Entry& entry, std::string_view text) {
    int slots = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, slots);
    if (error != std::errc{} || stop != end || slots < 1 || slots > max_workers) {
        fail(entry, in_quotes(text) + " slots in " + in_quotes(entry.text) +
                        "; write a whole number from 1 to " + std::to_string(max_workers) +
                        ", or leave slots out and --nproc-per-node counts them");
    }
    return slots;
}

void set_once(const Entry& entry, std::optional<int>& slots, int value) {
    if (slots.value_or(value) != value) {
        fail(entry, in_quotes(entry.text) + " says both " + std::to_string(*slots) + " and " +
                        std::to_string(value) + " slots; write the number once");
    }
    slots = value;
}

std::string_view read_bracketed(const Entry& entry, std::string_view& word) {
    constexpr const char* form = "; write an IPv6 address in brackets: [fe80::1%eth0]:4";
    const std::size_t end = word.find(']');
    if (end == word.npos) fail(entry, in_quotes(word) + " lacks a ]" + form);
    const std::string_view host = word.substr(1, end - 1);
    const std::string_view address = host.substr(0, host.find('%'));
    const std::string_view zone = host.substr(address.size());
    const bool is_address = address.find(':') != address.npos &&
                            address.find_first_not_of("0123456789abcdefABCDEF:.") == address.npos;
    const bool is_zone =
        zone.empty() ||
        (zone.size() > 1 && zone.substr(1).find_first_not_of(name_characters) == zone.npos);
    if (!is_address || !is_zone) fail(entry, in_quotes(host) + " is no IPv6 address" + form);
    word.remove_prefix(end + 1);
    if (!word.empty() && word.front() != ':') fail(entry, in_quotes(word) + " after the ]" + form);
    return host;
}

std::string_view read_name(const Entry& entry, std::string_view& word) {
    const std::size_t colon = std::min(word.find(':'), word.size());
    const std::string_view host = word.substr(0, colon);
    if (host.find('@') != host.npos) {
        fail(entry, in_quotes(host) +
                        ": write the host alone and set the user in ~/.ssh/config, as for ssh");
    }
    if (word.find(':', colon + 1) != word.npos) {
        fail(entry, in_quotes(word) +
                        " may be an address or a host and slots; write [fe80::1] or [fe80::1]:4");
    }
    if (host.empty() || host.front() == '-' ||
        host.find_first_not_of(name_characters) != host.npos) {
        fail(entry,
             in_quotes(host) + " is no host's name; write h1, h1:4, h1 slots=4 or [fe80::1]:4");
    }
    word.remove_prefix(colon);
    return host;
}

// "h1", "h1:4", "[fe80::1]:4"
HostSlots parse_host(const Entry& entry, std::string_view word) {
    HostSlots result;
    result.host = word.starts_with('[') ? read_bracketed(entry, word) : read_name(entry, word);
    if (!word.empty()) result.slots = parse_slots(entry, word.substr(1));
    return result;
}

[[noreturn]] void fail_word(const Entry& entry, std::string_view key) {
    const auto* const other = std::find_if(words_of_others.begin(), words_of_others.end(),
                                           [&](const auto& row) { return row.first == key; });
    if (other != words_of_others.end()) {
        fail(entry, std::string(key) + " cannot be honoured in a hostfile: " + other->second);
    }
    fail(entry, in_quotes(key) +
                    " is unknown; after a host only slots=N and max_slots=N are, one host a line: "
                    "h1 slots=4");
}

// What follows a host: "slots=4 max_slots = 8"
void parse_words(const Entry& entry, std::string_view rest, HostSlots& host) {
    std::optional<int> max_slots;
    while (!rest.empty()) {
        const std::string_view key = take_word(rest, "=");
        const bool is_most = key == "max_slots" || key == "max-slots";
        if (key != "slots" && !is_most) fail_word(entry, key);
        std::string_view value;
        if (rest.starts_with('=')) {
            rest = trimmed(rest.substr(1));
            value = take_word(rest);
        }
        set_once(entry, is_most ? max_slots : host.slots, parse_slots(entry, value));
    }
    if (!max_slots) return;
    if (!host.slots) host.slots = max_slots;
    if (*host.slots > *max_slots) {
        fail(entry, in_quotes(entry.text) + " has more slots than max_slots; ddp-launch starts " +
                        "slots workers and never more, so leave max_slots out");
    }
}

std::string lower(std::string text) {
    for (char& c : text) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return text;
}

// The hosts so far.
class HostList {
public:
    void add(const Entry& entry, HostSlots host) {
        if (!names_.insert(lower(host.host)).second) {
            fail(entry, host.host + " comes a second time; write it once, with all its slots: " +
                            host.host + " slots=N in a hostfile, --hosts=" + host.host + ":N");
        }
        hosts_.push_back(std::move(host));
    }
    std::vector<HostSlots> take() { return std::move(hosts_); }

private:
    std::vector<HostSlots> hosts_;
    std::set<std::string> names_;
};

// Takes a part off the front, up to the separator, which goes too.
std::string_view take_until(std::string_view& text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

// "3", "01-03": the numbers as text. Nothing when it is no such range.
std::optional<std::vector<std::string>> expand_range(std::string_view text) {
    constexpr std::size_t most_digits = 9;  // an int has room for them
    const std::size_t dash = text.find('-');
    const std::string_view first = text.substr(0, dash);
    const std::string_view last = dash == text.npos ? first : text.substr(dash + 1);
    std::array<int, 2> ends{};
    for (std::size_t i = 0; i < 2; ++i) {
        const std::string_view number = i == 0 ? first : last;
        if (number.empty() || number.size() > most_digits) return std::nullopt;
        if (number.find_first_not_of(digits) != number.npos) return std::nullopt;
        std::from_chars(number.data(), number.data() + number.size(), ends[i]);
    }
    if (ends[1] < ends[0] || ends[1] - ends[0] >= max_listed_hosts) return std::nullopt;
    std::vector<std::string> numbers;
    for (int number = ends[0]; number <= ends[1]; ++number) {
        std::string digits_of_it = std::to_string(number);
        if (digits_of_it.size() < first.size()) {
            digits_of_it.insert(0, first.size() - digits_of_it.size(), '0');
        }
        numbers.push_back(std::move(digits_of_it));
    }
    return numbers;
}

// What is between brackets: "01-03,7"
std::optional<std::vector<std::string>> expand_ranges(std::string_view text) {
    std::vector<std::string> numbers;
    do {
        const bool ends_in_comma = text.ends_with(',');
        const auto more = expand_range(take_until(text, ','));
        if (!more || (text.empty() && ends_in_comma)) return std::nullopt;
        if (numbers.size() + more->size() > max_listed_hosts) return std::nullopt;
        numbers.insert(numbers.end(), more->begin(), more->end());
    } while (!text.empty());
    return numbers;
}

// Takes a name with its brackets off the front: "gpu-a[1-2]b". Nothing when it is no such name.
std::optional<std::vector<std::string>> expand_name(std::string_view& text) {
    std::vector<std::string> names{""};
    while (!text.empty() && text.front() != ',') {
        std::vector<std::string> parts(1);
        if (text.front() == '[') {
            if (text.find(']') == text.npos) return std::nullopt;
            text.remove_prefix(1);
            const auto numbers = expand_ranges(take_until(text, ']'));
            if (!numbers) return std::nullopt;
            parts = *numbers;
        } else {
            parts[0] = text.substr(0, text.find_first_not_of(name_characters));
            if (parts[0].empty()) return std::nullopt;
            text.remove_prefix(parts[0].size());
        }
        if (names.size() * parts.size() > max_listed_hosts) return std::nullopt;
        std::vector<std::string> longer;
        longer.reserve(names.size() * parts.size());
        for (const std::string& name : names) {
            for (const std::string& part : parts) longer.push_back(name + part);
        }
        names = std::move(longer);
    }
    if (names.front().empty()) return std::nullopt;
    return names;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& file) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    HostList hosts;
    for (int number = 1; !text.empty(); ++number) {
        const std::string_view line = take_until(text, '\n');
        const Entry entry{file + ":" + std::to_string(number),
                          trimmed(line.substr(0, line.find('#')))};
        if (entry.text.empty()) continue;
        std::string_view rest = entry.text;
        HostSlots host = parse_host(entry, take_word(rest));
        parse_words(entry, rest, host);
        hosts.add(entry, std::move(host));
    }
    std::vector<HostSlots> result = hosts.take();
    if (result.empty()) {
        throw UsageError(file + ": no host in it; write one a line: h1 slots=4");
    }
    return result;
}

std::vector<HostSlots> parse_hosts(const GivenValue& given) {
    if (given.text.empty()) fail_value(given, "a list of hosts: h1:4,h2:4");
    std::string_view text = given.text;
    HostList hosts;
    bool more = true;
    for (int number = 1; more; ++number) {
        more = text.find(',') != text.npos;
        const Entry entry{std::string(given.label) + ", entry " + std::to_string(number),
                          trimmed(take_until(text, ','))};
        hosts.add(entry, parse_host(entry, entry.text));
    }
    return hosts.take();
}

std::vector<std::string> expand_nodelist(const GivenValue& given) {
    std::vector<std::string> hosts;
    std::string_view text = given.text;
    bool more = true;
    while (more) {
        const auto names = expand_name(text);
        if (!names || hosts.size() + names->size() > max_listed_hosts) {
            fail_value(given, "a list of at most " + std::to_string(max_listed_hosts) +
                                  " hosts as Slurm writes it: node[01-03,7],gpu1");
        }
        hosts.insert(hosts.end(), names->begin(), names->end());
        more = text.starts_with(',');
        if (more) text.remove_prefix(1);
    }
    return hosts;
}

}  // namespace ddp::launcher
