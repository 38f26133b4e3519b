// Each section is a label and a value beside it:
//
//   rank 1 (local rank 1, pid 4711) failed: SIGSEGV (signal 11), core dumped
//     when     after 1 min 12 s, attempt 1 of 3
//     where    host node7, cuda:0 = GPU 1
//     error    UsageError: there is no data
//     stopped  rank 0, 2-5 (SIGTERM, took 0.2 s); rank 6 (SIGKILL, took 30 s)
#include "launcher/report/failure_report.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t label_width = 9;
constexpr std::size_t value_indent = 2 + label_width;
// 80 columns, less "ddp-launch: " and the indent.
constexpr std::size_t value_width = 80 - 12 - value_indent;
constexpr std::size_t max_message_bytes = 4000;
constexpr std::size_t max_stderr_lines = 20;
constexpr std::size_t max_trace_lines = 8;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    return text;
}

std::string first_bytes(std::string_view text) {
    text = trimmed(text);
    return text.size() <= max_message_bytes
               ? std::string(text)
               : std::string(text.substr(0, max_message_bytes)) + " ...";
}

std::string_view last_lines(std::string_view text, std::size_t lines) {
    text = trimmed(text);
    if (text.size() > max_message_bytes) text.remove_prefix(text.size() - max_message_bytes);
    std::size_t start = text.size();
    for (; lines > 0 && start > 0; --lines) {
        start = text.rfind('\n', start - 1);
        if (start == text.npos) return text;
    }
    return start == text.size() ? text : text.substr(start + 1);
}

// Of the first word. What is quoted is one, so that it can be copied: --wrap='1:gdb --args'.
std::size_t end_of_word(std::string_view text) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::size_t quote = text.substr(0, space).find("='");
    if (quote == text.npos) return space;
    const std::size_t closing = text.find('\'', quote + 2);
    return closing == text.npos ? space : std::min(text.find(' ', closing), text.size());
}

// Breaks at spaces; a longer word stays whole.
std::string laid_out(std::string_view text, Lines lines) {
    if (lines == Lines::whole) return std::string(text);
    std::string result;
    std::size_t column = 0;
    while (!text.empty()) {
        const std::size_t end = end_of_word(text);
        if (column > 0 && column + 1 + end > value_width) {
            result += '\n';
            column = 0;
        } else if (column > 0) {
            result += ' ';
            ++column;
        }
        result += text.substr(0, end);
        column += end;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return result;
}

// "\n  label    value", each further line of the value under its first.
std::string section(std::string_view label, std::string_view value) {
    if (value.empty()) return {};
    std::string text = "\n  " + std::string(label);
    text.append(label.size() < label_width ? label_width - label.size() : 1, ' ');
    for (const char c : value) {
        text += c;
        if (c == '\n') text.append(value_indent, ' ');
    }
    return text;
}

// What is said of all workers that ended in the same way.
struct Group {
    std::vector<int> ranks;
    milliseconds longest{0};
};

std::string manner_of(const WorkerEnd& end, Part part) {
    if (part == Part::stopped) {
        std::string name = signal_name(end.stopped_with);
        if (end.status.signal == end.stopped_with) return name;
        return to_string(end.status) + " after " + name;
    }
    if (part == Part::left && end.error && end.error->peer) {
        return "because of rank " + std::to_string(*end.error->peer) + ", " + to_string(end.status);
    }
    return to_string(end.status);
}

std::string list_of(Part wanted, std::span<const WorkerEnd> ended, const WorkerEnd* root,
                    Lines lines) {
    std::map<std::string, Group> groups;
    for (const WorkerEnd& end : ended) {
        if (part_of(end, &end == root) != wanted) continue;
        Group& group = groups[manner_of(end, wanted)];
        group.ranks.push_back(end.rank);
        group.longest =
            std::max(group.longest, wanted == Part::stopped ? end.stop_took : end.ran_for);
    }
    std::string text;
    for (auto& [manner, group] : groups) {
        std::sort(group.ranks.begin(), group.ranks.end());
        text += (text.empty() ? "rank " : "; rank ") + list_ranks(group.ranks) + " (" + manner;
        if (wanted == Part::stopped) text += ", took " + describe_time(group.longest);
        if (wanted == Part::failed) text += " after " + describe_time(group.longest);
        text += ")";
    }
    return laid_out(text, lines);
}

std::string others_text(std::span<const WorkerEnd> ended, const WorkerEnd* root, Lines lines) {
    return section("failed", list_of(Part::failed, ended, root, lines)) +
           section("left", list_of(Part::left, ended, root, lines)) +
           section("stopped", list_of(Part::stopped, ended, root, lines)) +
           section("fine", list_of(Part::fine, ended, root, lines));
}

std::string_view message_of(const WorkerEnd& end) {
    return end.error ? trimmed(end.error->message) : "";
}

// Sorted.
std::vector<int> ranks_that_say(std::string_view message, std::span<const WorkerEnd> ended) {
    std::vector<int> ranks;
    for (const WorkerEnd& end : ended) {
        if (message_of(end) == message) ranks.push_back(end.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

std::string said_by(const std::vector<int>& ranks, std::string_view message) {
    return (ranks.size() > 1 ? "ranks " : "rank ") + list_ranks(ranks) + ": " +
           first_bytes(message);
}

// Of a rank that the others blame, and that says nothing itself, they say what was the matter: what
// most of them do; of equals the first.
std::string words_of_the_others(std::span<const WorkerEnd> ended) {
    std::map<std::string_view, int> times;
    for (const WorkerEnd& end : ended) {
        if (part_of(end, false) == Part::left) ++times[message_of(end)];
    }
    std::string_view message;
    int most = 0;
    for (const WorkerEnd& end : ended) {
        const auto found = times.find(message_of(end));
        if (found == times.end() || found->second <= most) continue;
        std::tie(message, most) = *found;
    }
    return most == 0 ? "" : section("error", said_by(ranks_that_say(message, ended), message));
}

// What the worker itself said: its error file, and on stderr. Nothing is said twice.
std::string own_words(const WorkerEnd& root, std::span<const WorkerEnd> ended) {
    std::string text;
    const std::string_view said = last_lines(root.last_stderr, max_stderr_lines);
    const auto is_said = [&](std::string_view what) { return said.find(what) != said.npos; };
    if (root.error) {
        const std::string_view message = trimmed(root.error->message);
        const std::vector<int> same = ranks_that_say(message, ended);
        text += section("error", same.size() > 1 ? said_by(same, message) : first_bytes(message));
        const std::string_view trace = last_lines(root.error->callstack, max_trace_lines);
        if (!trace.empty() && !is_said(last_lines(trace, 1))) text += section("trace", trace);
        if (said == message) return text;
    }
    return text + section("stderr", said);
}

// Its lines are whole: each is one fact.
std::string hang_section(const JobFacts& facts) {
    return facts.hang ? section("hang", facts.hang->text) : "";
}

// "it was stopped by SIGKILL", "it left with exit code 82"
std::string how_it_ended(const WorkerEnd& end) {
    if (end.stopped_with == 0) {
        return (end.status.signal == 0 ? "left with " : "ended by ") + to_string(end.status);
    }
    if (end.status.signal == end.stopped_with) {
        return "was stopped by " + signal_name(end.stopped_with);
    }
    return "ended with " + to_string(end.status) + " after " + signal_name(end.stopped_with);
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
        if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
        i = last + 1;
    }
    return text;
}

std::string describe_time(milliseconds time) {
    const auto seconds = time.count() / 1000;
    if (time < milliseconds{100}) return std::to_string(time.count()) + " ms";
    if (seconds < 10) {
        const auto tenths = (time.count() + 50) / 100;
        return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
    }
    if (seconds < 60) return std::to_string(seconds) + " s";
    const auto minutes = seconds / 60;
    if (minutes < 60) {
        return std::to_string(minutes) + " min " + std::to_string(seconds % 60) + " s";
    }
    return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

std::string headline(const WorkerEnd& root, const RootCause& root_cause) {
    return "rank " + std::to_string(root.rank) + " (local rank " + std::to_string(root.local_rank) +
           ", pid " + std::to_string(root.pid) + ")" +
           (root_cause.held_up          ? " held up the job: it " + how_it_ended(root)
            : root_cause.named_by_peers ? " made the others leave: it " + how_it_ended(root)
                                        : " failed: " + to_string(root.status));
}

std::string failure_text(std::span<const WorkerEnd> ended, const RootCause& root_cause,
                         const JobFacts& facts) {
    const WorkerEnd& root = ended[root_cause.index];
    std::string when = "after " + describe_time(root.ran_for);
    if (facts.attempts > 1) {
        when +=
            ", attempt " + std::to_string(facts.attempt) + " of " + std::to_string(facts.attempts);
    }
    std::string text = headline(root, root_cause) + section("when", when);
    text += section("where", "host " + (root.host.empty() ? facts.host : root.host) +
                                 (root.gpu.empty() ? "" : ", ") + root.gpu);
    if (root_cause.named_by_peers && !root.error) text += words_of_the_others(ended);
    text += own_words(root, ended);
    text += section("call", root.last_call);
    text += hang_section(facts);
    for (const std::string& hint : facts.hints) {
        text += section("hint", laid_out(hint, facts.lines));
    }
    text += others_text(ended, &root, facts.lines);
    return text + section("report", facts.report_file);
}

std::string stop_text(int signal, std::span<const WorkerEnd> ended, const JobFacts& facts) {
    const Lines lines = facts.lines;
    if (signal == SIGPIPE) {
        return "nobody reads stdout any more, so the job was stopped (SIGPIPE); "
               "--on-closed-stdout=continue lets one go on" +
               section("failed", list_of(Part::failed, ended, nullptr, lines));
    }
    return "stopped by " + signal_name(signal) + hang_section(facts) +
           others_text(ended, nullptr, lines);
}

}  // namespace ddp::launcher
