#include "launcher/timeline/timeline_files.hpp"

#include "base/replace_file.hpp"
#include "launcher/process/forked_helper.hpp"
#include "launcher/timeline/trace_text.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

namespace ddp::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds between_looks{5};
constexpr ::mode_t mode = 0644;

void check_place(const char* option, const std::string& path) {
    if (path.empty()) return;
    const auto refuse = [&](const std::string& why) {
        throw UsageError(std::string(option) + "=" + path + ": " + why);
    };
    std::error_code ignored;
    const fs::path folder = fs::absolute(path, ignored).parent_path();
    if (fs::is_directory(path, ignored)) refuse("is a directory; a file is wanted");
    if (!fs::is_directory(folder, ignored)) refuse("there is no directory " + folder.string());
    if (::access(folder.c_str(), W_OK) != 0) {
        refuse("cannot write into " + folder.string() + ": " + std::strerror(errno));
    }
}

std::string written(const char* what, const std::string& path, const std::string& text) {
    const int code = base::replace_file(path, text, mode);
    if (code == 0) return std::string(what) + ": " + path;
    return std::string("cannot write the ") + what + " " + path + ": " + std::strerror(code);
}

void tell(int socket, const std::string& text) {
    [[maybe_unused]] const auto sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

}  // namespace

void check_timeline_files(const LogOptions& options) {
    check_place("--report", options.report_page);
    check_place("--trace", options.trace);
}

std::size_t timeline_entries(const LogOptions& options, int workers) {
    const bool wanted = !options.report_page.empty() || !options.trace.empty();
    return wanted ? JobTimeline::entries_for(workers) : 0;
}

void TimelineFiles::run_writer(int socket) const {
    if (!page_.empty()) tell(socket, written("report", page_, report_page(timeline_, facts_)));
    if (!trace_.empty()) tell(socket, written("trace", trace_, trace_text(timeline_)));
}

std::vector<std::string> TimelineFiles::write(
    std::string report_json, const std::function<void(Clock::time_point until)>& wait,
    const std::function<bool()>& is_hurried) {
    std::vector<std::string> news;
    if (!wanted()) return news;
    facts_.report_json = std::move(report_json);
    ForkedHelper helper;
    try {
        helper = fork_helper("ddp-report", "the writer of reports", SOCK_SEQPACKET,
                             [this](int socket) { run_writer(socket); });
    } catch (const SystemError& error) {
        return {error.what()};
    }
    const auto end = Clock::now() + most_time;
    bool has_ended = false;
    while (!has_ended && !is_hurried() && Clock::now() < end) {
        std::array<char, 8192> text{};
        const ssize_t got = ::recv(helper.socket.get(), text.data(), text.size(), MSG_DONTWAIT);
        if (got > 0) {
            news.emplace_back(text.data(), static_cast<std::size_t>(got));
        } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            wait(Clock::now() + between_looks);
        } else {
            has_ended = true;
        }
    }
    // Its number is its own as long as nothing else waits for children.
    char ignored = 0;
    has_ended = has_ended || ::recv(helper.socket.get(), &ignored, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
    if (!has_ended) ::kill(helper.pid, SIGKILL);
    ::waitpid(helper.pid, nullptr, WNOHANG);
    const std::size_t expected = (page_.empty() ? 0U : 1U) + (trace_.empty() ? 0U : 1U);
    if (news.size() < expected) {
        const std::string& missed = news.empty() && !page_.empty() ? page_ : trace_;
        news.push_back(missed + " was not written: " +
                       (has_ended ? "its writer has ended" : "that took too long"));
    }
    return news;
}

}  // namespace ddp::launcher
