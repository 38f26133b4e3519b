#include "launcher/timeline/timeline_files.hpp"

#include "base/process/pidfd.hpp"
#include "base/random.hpp"
#include "base/replace_file.hpp"
#include "launcher/process/forked_helper.hpp"
#include "launcher/timeline/trace_text.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

namespace ddp::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds between_looks{5};
constexpr milliseconds time_to_die{250};

void check_place(const char* option, const std::string& path) {
    if (path.empty()) return;
    const auto refuse = [&](const std::string& why) {
        throw UsageError(std::string(option) + "=" + path + ": " + why);
    };
    std::error_code ignored;
    const fs::path folder = fs::absolute(path, ignored).parent_path();
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
        refuse("is no file, but a directory, a device or a pipe");
    }
    if (!fs::is_directory(folder, ignored)) refuse("there is no directory " + folder.string());
    if (::access(folder.c_str(), W_OK) != 0) {
        refuse("cannot write into " + folder.string() + ": " + std::strerror(errno));
    }
}

// As any program's files.
::mode_t usual_mode() {
    const ::mode_t mask = ::umask(0);
    ::umask(mask);
    return 0666 & ~mask;
}

// Nobody waits for it: it may hang where the writer did.
void remove_soon(const std::string& path) {
    try {
        fork_helper("ddp-report", "the remover of a file", SOCK_SEQPACKET,
                    [&](int) { ::unlink(path.c_str()); });
    } catch (const SystemError&) {  // it is left
    }
}

// Without a pidfd its number is as good: nobody else has waited for it.
void end_helper(pid_t pid, int pidfd) {
    if (pidfd < 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, WNOHANG);
        return;
    }
    base::signal_pidfd(pidfd, SIGKILL);
    const auto until = TimelineFiles::Clock::now() + time_to_die;
    siginfo_t info{};
    while (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), &info,
                    WEXITED | WNOHANG) == 0 &&
           info.si_pid == 0 && TimelineFiles::Clock::now() < until) {
        std::this_thread::sleep_for(milliseconds{1});
    }
}

}  // namespace

void check_timeline_files(const LogOptions& options, bool is_of_several_hosts) {
    check_place("--report", options.report_page);
    check_place("--trace", options.trace);
    if (is_of_several_hosts && timeline_entries(options, 1) > 0) {
        throw UsageError("--report and --trace: only of a job of one host so far");
    }
}

std::size_t timeline_entries(const LogOptions& options, int workers) {
    const bool wanted = !options.report_page.empty() || !options.trace.empty();
    return wanted ? JobTimeline::entries_for(workers) : 0;
}

TimelineFiles::TimelineFiles(const Options& options)
    : files_{{{.what = "report", .path = options.logs.report_page, .make = &report_page},
              {.what = "trace",
               .path = options.logs.trace,
               .make = [](const JobTimeline& timeline, const PageFacts&) {
                   return trace_text(timeline);
               }}}} {
    facts_.command = options.program.command;
    facts_.run_id = options.run_id;
}

bool TimelineFiles::wanted() const {
    return std::ranges::any_of(files_, [](const File& file) { return !file.path.empty(); });
}

// A message is the file's index, and what became of it.
void TimelineFiles::run_writer(int socket) const {
    for (std::size_t i = 0; i < files_.size(); ++i) {
        const File& file = files_[i];
        if (file.path.empty()) continue;
        std::string problem;
        try {
            const int code = base::replace_file(file.path, file.make(timeline_, facts_),
                                                usual_mode(), file.temporary);
            if (code != 0) problem = std::strerror(code);
        } catch (const std::exception& error) {
            problem = error.what();
        }
        std::string message(1, static_cast<char>('0' + i));
        message += problem.empty() ? std::string(file.what) + ": " + file.path
                                   : std::string("cannot write the ") + file.what + " " +
                                         file.path + ": " + problem;
        [[maybe_unused]] const auto sent =
            ::send(socket, message.data(), message.size(), MSG_NOSIGNAL);
    }
}

void TimelineFiles::take_news(const std::string& message) {
    const auto index = static_cast<std::size_t>(message[0] - '0');
    if (index < files_.size()) files_[index].news = message.substr(1);
}

std::vector<std::string> TimelineFiles::write(
    const std::function<void(Clock::time_point until)>& wait,
    const std::function<milliseconds()>& most_time) {
    if (!wanted()) return {};
    ForkedHelper helper;
    try {
        for (File& file : files_) {
            file.temporary = file.path + ".tmp" + std::to_string(base::random_bits());
        }
        helper = fork_helper("ddp-report", "the writer of reports", SOCK_SEQPACKET,
                             [this](int socket) { run_writer(socket); });
    } catch (const SystemError& error) {
        return {error.what()};
    }
    const base::UniqueFd pidfd(base::open_pidfd(helper.pid));
    const auto began = Clock::now();
    bool has_ended = false;
    while (!has_ended) {
        std::array<char, 8192> text{};
        const ssize_t got = ::recv(helper.socket.get(), text.data(), text.size(), MSG_DONTWAIT);
        if (got > 0) {
            take_news(std::string(text.data(), static_cast<std::size_t>(got)));
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            has_ended = true;
        } else if (Clock::now() - began < most_time()) {
            wait(Clock::now() + between_looks);
        } else {
            break;
        }
    }
    end_helper(helper.pid, pidfd.get());
    std::vector<std::string> news;
    for (File& file : files_) {
        if (file.path.empty()) continue;
        if (file.news.empty()) {
            file.news = std::string("cannot write the ") + file.what + " " + file.path + ": " +
                        (has_ended ? "its writer has failed" : "it takes too long");
            remove_soon(file.temporary);
        }
        news.push_back(file.news);
    }
    return news;
}

}  // namespace ddp::launcher
