#include "launcher/inspect/inspector.hpp"

#include "base/unique_fd.hpp"
#include "contract/exit_code.hpp"
#include "launcher/inspect/run_folder.hpp"
#include "launcher/inspect/run_table.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
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

constexpr std::size_t most_bytes = std::size_t{64} << 20;
constexpr int answer_within_ms = 2000;
// Between two looks that tell how busy processors are, where one was asked for.
constexpr milliseconds sample{100};

constexpr const char* help =
    "usage: ddp-launch inspect [RUN] [--json] [--watch[=SECONDS]]\n"
    "\n"
    "Shows the ranks of a job on this host, and who holds it up: of the newest that runs, else of\n"
    "the last that has ended. RUN: its run id, or its launcher's pid. Other users' jobs: as root.\n"
    "  --json               the same for programs (docs/inspect.md)\n"
    "  --watch[=SECONDS]    again and again (each second), until the job has ended\n"
    "A program that is called inspect is started as ./inspect.\n";

struct Wanted {
    std::string run;  // empty: any
    bool as_json = false;
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
        } else if (word == "--help" || word == "-h") {
            wanted.wants_help = true;
        } else if (word == watch) {
            wanted.every = milliseconds{1000};
        } else if (word.starts_with("--watch=")) {
            wanted.every = parse_seconds(word.substr(watch.size() + 1));
        } else if (word.starts_with("-") || word.empty() || !wanted.run.empty()) {
            throw UsageError(
                "inspect: \"" + std::string(word) +
                "\": takes one RUN, --json and --watch; see ddp-launch inspect --help");
        } else {
            wanted.run = word;
        }
    }
    return wanted;
}

// From `socket`, as run_door.hpp says. An invalid fd and EAGAIN in errno: nothing came in time.
base::UniqueFd receive_descriptor(int socket) {
    pollfd answer{socket, POLLIN, 0};
    if (::poll(&answer, 1, answer_within_ms) <= 0) {
        errno = EAGAIN;
        return {};
    }
    errno = 0;
    char byte = 0;
    iovec part{&byte, 1};
    int descriptor = -1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (n <= 0) return {};
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof descriptor)) {
        return {};
    }
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return base::UniqueFd(descriptor);
}

// From its beginning, whoever has read it before. Null: it is too long, or no JSON.
json read_document(int fd) {
    std::string text;
    std::array<char, 65536> piece{};
    while (text.size() < most_bytes) {
        const ssize_t n = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(text.size()));
        if (n <= 0) break;
        text.append(piece.data(), static_cast<std::size_t>(n));
    }
    json document = json::parse(text, nullptr, false);
    return document.is_object() ? std::move(document) : json();
}

struct Run {
    enum class Kind { live, ended, silent, gone };
    Folders whose = Folders::own;
    std::string folder;
    std::string name;
    Kind kind = Kind::gone;
    json document = {};  // of one that is live or has ended

    bool is_called(const std::string& run) const {
        if (document.is_null()) return name == run;
        const auto id = document.find("run_id");
        const auto pid = document.find("launcher_pid");
        return name == run || (id != document.end() && *id == run) ||
               (pid != document.end() && pid->dump() == run);
    }
};

bool read_last(int folder, Run& run) {
    const base::UniqueFd last(
        ::openat(folder, last_file(run.name).c_str(),
                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));  // whatever lies there
    if (last) run.document = read_document(last.get());
    if (run.document.is_null()) return false;
    run.kind = Run::Kind::ended;
    return true;
}

// As it is now. One that ends meanwhile has left its last view when it answers no more.
Run look(const std::string& folder, const std::string& name, Folders whose) {
    Run run{.whose = whose, .folder = folder, .name = name};
    const base::UniqueFd opened = open_run_folder(folder, whose);
    if (read_last(opened.get(), run)) return run;
    const base::UniqueFd socket = connect_to_run(opened.get(), name);
    bool is_silent = !socket && errno == EAGAIN;
    if (socket) {
        const base::UniqueFd memory = receive_descriptor(socket.get());
        is_silent = !memory && errno == EAGAIN;
        if (memory) run.document = read_document(memory.get());
    }
    if (!run.document.is_null()) {
        run.kind = Run::Kind::live;
    } else if (is_silent) {
        run.kind = Run::Kind::silent;
    } else {
        read_last(opened.get(), run);
    }
    return run;
}

// For root, whom no folder of another user keeps from the others.
Run look_at_others(const std::string& folder, const std::string& name) {
    try {
        return look(folder, name, Folders::of_all);
    } catch (const Error&) {
        return {.whose = Folders::of_all, .folder = folder, .name = name};
    }
}

Run find(const std::string& wanted) {
    std::vector<std::string> folders{run_folder_path()};
    if (::geteuid() == 0) {
        for (std::string& other : run_folder_paths_of_all()) {
            if (other != folders.front()) folders.push_back(std::move(other));
        }
    }
    std::vector<std::pair<std::string, std::string>> places;  // name, folder
    for (const std::string& folder : folders) {
        for (std::string& name : runs_in(folder)) places.emplace_back(std::move(name), folder);
    }
    std::ranges::sort(places, std::greater());
    std::optional<Run> best;
    for (const auto& [name, folder] : places) {
        const bool is_own = folder == folders.front();
        Run run = is_own ? look(folder, name, Folders::own) : look_at_others(folder, name);
        if (!wanted.empty() && !run.is_called(wanted)) continue;
        if (!best || run.kind == Run::Kind::live) best = std::move(run);
        if (best->kind == Run::Kind::live) break;
    }
    if (best) return std::move(*best);
    throw Error(wanted.empty() ? "inspect: there is no job in " + folders.front() +
                                     ", and none has ended there"
                               : "inspect: no job of " + wanted + " in " + folders.front() +
                                     "; ddp-launch inspect shows the newest");
}

void require_document(const Run& run) {
    if (run.kind == Run::Kind::silent) {
        throw Error("inspect: run " + run.name + " does not answer: its launcher is stopped, or " +
                    "too busy");
    }
    if (run.kind == Run::Kind::gone) {
        throw Error("inspect: run " + run.name +
                    " has ended and left nothing: its launcher was killed, or had --no-history");
    }
}

// Again after a while, so that it tells what is used now.
void look_again(Run& run, milliseconds pause) {
    if (run.kind != Run::Kind::live) return;
    std::this_thread::sleep_for(pause);
    Run later = look(run.folder, run.name, run.whose);
    if (later.kind == Run::Kind::live) settle_cpu_shares(run.document, later.document);
    run = std::move(later);
}

bool show(const Run& run, const Wanted& wanted) {
    const std::string text = wanted.as_json ? run.document.dump(wanted.every ? -1 : 2, ' ', false,
                                                                json::error_handler_t::replace) +
                                                  "\n"
                                            : run_table(run.document);
    const bool clears = wanted.every && !wanted.as_json && ::isatty(STDOUT_FILENO) != 0;
    const std::string whole = clears ? "\033[H\033[J" + text : text;
    return std::fwrite(whole.data(), 1, whole.size(), stdout) == whole.size() &&
           std::fflush(stdout) == 0;
}

}  // namespace

int inspect(std::span<char* const> words) {
    const Wanted wanted = parse(words);
    if (wanted.wants_help) {
        return std::fputs(help, stdout) >= 0 ? contract::exit_ok : contract::exit_error;
    }
    Run run = find(wanted.run);
    try {
        require_document(run);
        look_again(run, sample);
        require_document(run);
        while (show(run, wanted) && wanted.every && run.kind == Run::Kind::live) {
            look_again(run, *wanted.every);
            require_document(run);
        }
    } catch (const json::exception&) {
        throw Error("inspect: run " + run.name + " is of another version of ddp-launch");
    }
    return std::ferror(stdout) == 0 ? contract::exit_ok : contract::exit_error;
}

}  // namespace ddp::launcher
