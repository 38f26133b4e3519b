#include "launcher/inspect/inspector.hpp"

#include "base/deadline.hpp"
#include "base/net/pass_descriptor.hpp"
#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"
#include "launcher/inspect/inspect_options.hpp"
#include "launcher/inspect/run_folder.hpp"
#include "launcher/inspect/run_stacks.hpp"
#include "launcher/inspect/run_table.hpp"
#include "launcher/inspect/run_view.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t most_bytes = std::size_t{64} << 20;  // 4,096 ranks have a sixteenth of it
constexpr int most_depth = 8;
// For all that are asked together.
constexpr std::chrono::seconds answer_within{2};
// Between two looks that tell how busy processors are, where one was asked for.
constexpr milliseconds sample{100};

struct Wanted {
    std::string run;  // empty: any
    bool as_json = false;
    bool wants_stacks = false;
    bool wants_help = false;
    std::optional<milliseconds> every;
};

milliseconds parse_seconds(std::string_view text) {
    double seconds = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    constexpr double least = 0.05;
    constexpr double most = 86400;
    const bool is_one = problem == std::errc{} && end == text.data() + text.size() &&
                        seconds >= least && seconds <= most;
    if (!is_one) {
        throw UsageError("inspect: --watch: \"" + std::string(text) +
                         "\": a number of seconds from 0.05 to 86400 is needed");
    }
    return milliseconds(std::llround(seconds * 1000));
}

Wanted parse(std::span<char* const> words) {
    constexpr std::string_view watch = "--watch";
    Wanted wanted;
    for (const std::string_view word : words) {
        if (word == "--json") {
            wanted.as_json = true;
        } else if (word == "--stacks") {
            wanted.wants_stacks = true;
        } else if (word == "--help" || word == "-h") {
            wanted.wants_help = true;
        } else if (word == watch) {
            wanted.every = milliseconds{1000};
        } else if (word.starts_with("--watch=")) {
            wanted.every = parse_seconds(word.substr(watch.size() + 1));
        } else if (word.starts_with("-") || word.empty() || !wanted.run.empty()) {
            throw UsageError(
                "inspect: \"" + std::string(word) +
                "\": takes one RUN, --json, --stacks and --watch; see ddp-launch inspect --help");
        } else {
            wanted.run = word;
        }
    }
    return wanted;
}

// From its beginning, whoever has read it before. Null: it is too long, or not a job's.
json read_document(int fd) {
    std::string text;
    std::array<char, 65536> piece{};
    while (text.size() < most_bytes) {
        const ssize_t n = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(text.size()));
        if (n <= 0) break;
        text.append(piece.data(), static_cast<std::size_t>(n));
    }
    const auto is_shallow = [](int depth, json::parse_event_t, json&) {
        return depth <= most_depth;
    };
    json document = json::parse(text, is_shallow, false);
    return is_run(document) ? std::move(document) : json();
}

struct Run {
    enum class Kind { live, ended, silent, gone };
    const RunFolder* folder;
    std::string name;
    Kind kind = Kind::gone;
    json document = {};  // of one that is live or has ended

    bool is_called(const std::string& word) const {
        if (document.is_null()) return name == word;
        return name == word || document.at("run_id") == word ||
               document.at("launcher_pid").dump() == word;
    }
};

bool take_document(Run& run, Run::Kind kind, const base::UniqueFd& from) {
    if (from) run.document = read_document(from.get());
    if (run.document.is_null()) return false;
    run.kind = kind;
    return true;
}

// Where others wait before its launcher's door, until their turn is over. Else invalid, with errno.
base::UniqueFd connect(const RunFolder& folder, const std::string& run,
                       const base::Deadline& deadline) {
    constexpr milliseconds pause{10};
    while (true) {
        base::UniqueFd socket = folder.connect_to(run);
        if (socket || errno != EAGAIN || deadline.passed()) return socket;
        std::this_thread::sleep_for(pause);
    }
}

// What run_door.hpp says that who connects gets. Else invalid, with EAGAIN where nothing comes.
base::UniqueFd ask(int socket, const base::Deadline& deadline) {
    if (!base::wait_readable(socket, deadline)) {
        errno = EAGAIN;
        return {};
    }
    char byte = 0;
    errno = 0;
    base::UniqueFd memory = base::receive_with_descriptor(socket, {&byte, 1}).descriptor;
    // Nobody waits for what another user's process might hand over instead.
    const bool is_sealed = memory && (::fcntl(memory.get(), F_GET_SEALS) & run_seals) == run_seals;
    return is_sealed ? std::move(memory) : base::UniqueFd();
}

// As it is now. One that ends meanwhile answers no more, but has left its last view.
Run look(const RunFolder& folder, const std::string& name, const base::Deadline& deadline) {
    Run run{.folder = &folder, .name = name};
    if (take_document(run, Run::Kind::ended, folder.open_last_view(name))) return run;
    const base::UniqueFd socket = connect(folder, name, deadline);
    const base::UniqueFd memory = socket ? ask(socket.get(), deadline) : base::UniqueFd();
    if (!memory && errno == EAGAIN) {
        run.kind = Run::Kind::silent;
    } else if (!take_document(run, Run::Kind::live, memory)) {
        take_document(run, Run::Kind::ended, folder.open_last_view(name));
    }
    return run;
}

// This user's, if there is one, and, for root, all others that are to be trusted.
std::vector<RunFolder> open_folders() {
    std::vector<RunFolder> folders;
    const std::string own = RunFolder::own_path();
    if (::access(own.c_str(), F_OK) == 0) folders.emplace_back(own);
    if (::geteuid() != 0) return folders;
    for (const std::string& path : RunFolder::paths_of_all()) {
        if (path == own) continue;
        try {
            folders.emplace_back(path);
        } catch (const SystemError&) {
            continue;
        }
    }
    return folders;
}

// The newest that runs, of those that are so called; else the newest of all.
Run find(std::span<const RunFolder> folders, const std::string& wanted) {
    const auto deadline = base::Deadline::after(answer_within);
    std::optional<Run> best;
    for (const RunFolder& folder : folders) {
        std::optional<Run> best_here;
        for (const std::string& name : folder.runs()) {
            Run run = look(folder, name, deadline);
            if (!wanted.empty() && !run.is_called(wanted)) continue;
            if (!best_here || run.kind == Run::Kind::live) best_here = std::move(run);
            if (best_here->kind == Run::Kind::live) break;
        }
        const bool is_better =
            best_here &&
            (!best || (best_here->kind == Run::Kind::live && best->kind != Run::Kind::live));
        if (is_better) best = std::move(best_here);
    }
    if (best) return std::move(*best);
    const std::string place = RunFolder::own_path();
    throw Error(wanted.empty()
                    ? "inspect: there is no job in " + place + ", and none has ended there"
                    : "inspect: no job of " + wanted + " in " + place +
                          "; ddp-launch inspect shows the newest");
}

void require_document(const Run& run) {
    if (run.kind == Run::Kind::silent) {
        throw Error("inspect: run " + run.name +
                    " does not answer: its launcher is stopped, too busy, or out of descriptors");
    }
    if (run.kind == Run::Kind::gone) {
        throw Error("inspect: run " + run.name +
                    " has ended and left nothing to be read: its launcher was killed, had "
                    "--no-history or a full disk, or is of another version");
    }
}

// After a while, so that it tells what is used now.
Run look_again(const Run& run, milliseconds pause) {
    std::this_thread::sleep_for(pause);
    Run later = look(*run.folder, run.name, base::Deadline::after(answer_within));
    require_document(later);
    if (later.kind == Run::Kind::live) settle_cpu_shares(run.document, later.document);
    return later;
}

// Now, or as they were when it hung.
std::vector<RankStacks> stacks_of(const Run& run) {
    if (run.kind == Run::Kind::live) return read_stacks(run.document, run.folder->owner());
    const json& hang = run.document.at("hang");
    return hang.is_object() ? stacks_from_json(hang.value("stacks", json()))
                            : std::vector<RankStacks>{};
}

void show(Run& run, const Wanted& wanted) {
    const std::vector<RankStacks> stacks =
        wanted.wants_stacks ? stacks_of(run) : std::vector<RankStacks>{};
    if (wanted.wants_stacks) run.document["stacks"] = to_json(stacks);
    std::string text = run_table(run.document);
    for (const RankStacks& one : stacks) text += "\n" + text_of_all(one) + "\n";
    if (wanted.as_json) {
        text = run.document.dump(wanted.every ? -1 : 2, ' ', true) + "\n";
    } else if (wanted.every && ::isatty(STDOUT_FILENO) != 0) {
        text.insert(0, "\033[H\033[J");  // in the place of the one before
    }
    const bool is_written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!is_written) throw SystemError("inspect: stdout", errno);
}

}  // namespace

void inspect(std::span<char* const> words) {
    const Wanted wanted = parse(words);
    if (wanted.wants_help) {
        std::fputs(inspect_help().c_str(), stdout);
        return;
    }
    const std::vector<RunFolder> folders = open_folders();
    Run run = find(folders, wanted.run);
    require_document(run);
    if (run.kind == Run::Kind::live) run = look_again(run, sample);
    show(run, wanted);
    while (wanted.every && run.kind == Run::Kind::live) {
        run = look_again(run, *wanted.every);
        show(run, wanted);
    }
}

}  // namespace ddp::launcher
