#include "backends/shm/tuning_file.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include "backends/shm/tuning.hpp"
#include "base/cpu_features.hpp"
#include "base/printable.hpp"
#include "base/unique_fd.hpp"

namespace ddp::shm {
namespace {

constexpr int most_ranks = 1 << 20;

struct FileRow {
    std::string_view processor;
    int ranks = 0;
    int cores = 0;
    std::string_view overrides;
    bool has_more_ranks_than_cores() const { return ranks > cores; }
};

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
    throw UsageError(where + ": " + why +
                     "; a row is PROCESSOR ranks=N cores=N NAME=VALUE,..., as ddp-bench --tune "
                     "writes it");
}

// The next word of `line`, which loses it; empty at its end.
std::string_view take_word(std::string_view& line) {
    constexpr std::string_view blanks = " \t\r";
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    const std::string_view word = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(word.size());
    return word;
}

int take_number(std::string_view& line, std::string_view name, const std::string& where) {
    std::string_view word = take_word(line);
    const std::string shown = base::printable(word);
    int number = 0;
    if (word.substr(0, name.size()) == name) {
        word.remove_prefix(name.size());
        const char* const end = word.data() + word.size();
        const auto [stop, error] = std::from_chars(word.data(), end, number);
        if (error != std::errc{} || stop != end) number = 0;
    }
    if (number < 1 || number > most_ranks) {
        refuse(where, "'" + shown + "' is not " + std::string(name) + " with a number from 1 to " +
                          std::to_string(most_ranks));
    }
    return number;
}

// Nothing for an empty line or a comment.
std::optional<FileRow> parse_row(std::string_view line, const std::string& where) {
    FileRow row;
    row.processor = take_word(line);
    if (row.processor.empty() || row.processor.front() == '#') return std::nullopt;
    row.ranks = take_number(line, "ranks=", where);
    row.cores = take_number(line, "cores=", where);
    row.overrides = take_word(line);
    if (const auto more = take_word(line); !more.empty()) {
        refuse(where, "'" + base::printable(more) + "' is one word too many");
    }
    try {
        make_tuning(row.ranks, row.cores, row.overrides);
    } catch (const UsageError& error) {
        throw UsageError(where + ": " + error.what());
    }
    return row;
}

// Each line, with its row if it is one.
template <class Body>
void for_each_line(std::string_view text, const std::string& file, const Body& body) {
    std::set<std::tuple<std::string_view, int, int>> seen;
    for (int number = 1; !text.empty(); ++number) {
        const std::string_view line = text.substr(0, text.find('\n'));
        const std::string where = file + ":" + std::to_string(number);
        const auto row = parse_row(line, where);
        if (row && !seen.emplace(row->processor, row->ranks, row->cores).second) {
            refuse(where, "a row before has the same processor, ranks and cores");
        }
        body(line, row);
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
}

[[noreturn]] void fail(const char* whose, const char* what, const std::string& file, int error) {
    throw UsageError(std::string(whose) + ": " + what + " " + base::printable(file) +
                     (error != 0 ? std::string(": ") + std::strerror(error) : ""));
}

}  // namespace

std::optional<std::string> read_tuning_file(const std::string& file, const char* whose) {
    // Not blocking: a FIFO has no end.
    const base::UniqueFd descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!descriptor && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
    if (!descriptor) fail(whose, "cannot open", file, errno);
    struct stat status {};
    if (::fstat(descriptor.get(), &status) != 0) fail(whose, "cannot look at", file, errno);
    if (!S_ISREG(status.st_mode)) fail(whose, "this is no regular file:", file, 0);
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
        const ssize_t got = ::read(descriptor.get(), part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(whose, "cannot read", file, errno);
        if (got == 0) return text;
        text.append(part.data(), static_cast<std::size_t>(got));
        if (text.size() > most_tuning_file_bytes) fail(whose, "has more than 256 KiB:", file, 0);
    }
}

std::string find_overrides(std::string_view text, const std::string& file,
                           std::string_view processor, int ranks, int cores) {
    std::optional<FileRow> best;
    for_each_line(text, file, [&](std::string_view, const std::optional<FileRow>& row) {
        if (!row) return;
        const bool fits = row->processor == processor && row->ranks >= ranks &&
                          row->has_more_ranks_than_cores() == (ranks > cores);
        const bool is_closer =
            !best || row->ranks < best->ranks || (row->ranks == best->ranks && row->cores == cores);
        if (fits && is_closer) best = row;
    });
    return best ? std::string(best->overrides) : "";
}

std::string replace_row(std::string_view text, const std::string& file, std::string_view processor,
                        int ranks, int cores, std::string_view overrides) {
    std::string row = std::string(processor) + " ranks=" + std::to_string(ranks) +
                      " cores=" + std::to_string(cores);
    if (!overrides.empty()) row += " " + std::string(overrides);
    std::string replaced;
    bool is_there = false;
    for_each_line(text, file, [&](std::string_view line, const std::optional<FileRow>& old) {
        const bool is_it =
            old && old->processor == processor && old->ranks == ranks && old->cores == cores;
        is_there = is_there || is_it;
        replaced += is_it ? row : std::string(line);
        replaced += '\n';
    });
    if (!is_there) replaced += row + "\n";
    return replaced;
}

std::string overrides_for(const char* variable, const char* system_file, int ranks, int cores) {
    const bool is_named = variable != nullptr && *variable == '@';
    if (variable != nullptr && !is_named) return variable;
    const char* const file = is_named ? variable + 1 : system_file;
    const auto text = read_tuning_file(file, "DDP_SHM_TUNING");
    if (!text && is_named) fail("DDP_SHM_TUNING", "cannot open", file, ENOENT);
    if (!text) return "";
    return find_overrides(*text, base::printable(file), base::processor_name(), ranks, cores);
}

}  // namespace ddp::shm
