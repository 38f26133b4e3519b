#include "launcher/logs/log_writer.hpp"

#include "base/deadline.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/forked_helper.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace ddp::launcher {
namespace {

// What is sent already may stay in front of the queue up to this size.
constexpr std::size_t max_unused_bytes = std::size_t{1} << 20;

constexpr std::chrono::milliseconds hurried_time{500};
// From SIGKILL until it is named as one that cannot be killed.
constexpr std::chrono::milliseconds time_to_die{250};

std::size_t lines_in(std::string_view bytes) {
    return static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

}  // namespace

void LogWriter::Requests::add(Request request) {
    if (waiting.empty()) progress_at = Clock::now();
    waiting.push_back(request);
    bytes += request.bytes;
    ++asked;
}

void LogWriter::Requests::complete(std::uint32_t count) {
    for (; count > 0 && !waiting.empty(); --count) {
        bytes -= waiting.front().bytes;
        waiting.pop_front();
        ++completed;
    }
    progress_at = Clock::now();
}

LogWriter::~LogWriter() {
    if (started() && !ended_) kill();
}

void LogWriter::start(const LogTree& tree, const Options& options) {
    ForkedHelper helper = fork_helper("ddp-log", "the log writer", SOCK_STREAM,
                                      [&](int socket) { run_log_writer(socket, tree, options); });
    socket_ = std::move(helper.socket);
    pid_ = helper.pid;
}

void LogWriter::open(int workers, int attempt) {
    open_problem_.clear();  // an earlier attempt's
    ask(OpenRequest{workers, attempt}, 0);
}

void LogWriter::append(int local_rank, Stream stream, std::string_view bytes) {
    if (!started()) return;
    if (unresponsive()) {
        lost_lines_ += lines_in(bytes);
        return;
    }
    ask(AppendRequest{local_rank, stream, std::string(bytes)}, lines_in(bytes));
}

void LogWriter::write_report(std::string json) { ask(ReportRequest{std::move(json)}, 0); }

void LogWriter::copy_error_files(int workers, int attempt, std::string folder) {
    ask(CopyErrorsRequest{workers, attempt, std::move(folder)}, 0);
}

void LogWriter::ask(const LogRequest& request, std::size_t lines) {
    if (!socket_) return;
    const std::size_t before = out_.size();
    base::append_frame(out_, encode(request));
    requests_.add({out_.size() - before, lines});
    send();
}

void LogWriter::run_ready() {
    send();
    receive();
}

void LogWriter::send() {
    while (socket_ && sent_ < out_.size()) {
        const ssize_t sent = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            sent_ += static_cast<std::size_t>(sent);
        } else if (errno != EINTR) {
            break;  // full; or its reader is gone, which receive() sees
        }
    }
    if (sent_ == out_.size()) {
        out_.clear();
        sent_ = 0;
    } else if (sent_ > max_unused_bytes) {
        out_.erase(0, sent_);
        sent_ = 0;
    }
}

void LogWriter::receive() {
    std::array<char, 16 * 1024> bytes;
    while (socket_) {
        const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got > 0) {
            answers_.feed({bytes.data(), static_cast<std::size_t>(got)});
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && errno == EAGAIN) {
            break;
        } else {
            socket_.reset();
        }
    }
    while (const auto payload = answers_.next()) take(decode_log_answer(*payload));
}

void LogWriter::take(const LogAnswer& answer) {
    if (const auto* completed = std::get_if<CompletedAnswer>(&answer)) {
        requests_.complete(completed->requests);
        stuck_ = false;
    } else if (const auto* problem = std::get_if<ProblemAnswer>(&answer)) {
        say(problem->text);
    } else if (const auto* not_opened = std::get_if<NotOpenedAnswer>(&answer)) {
        open_problem_ = not_opened->text;
    }
}

void LogWriter::look_at_time(Time now) {
    if (stuck_ || requests_.waiting.empty() || !socket_ || now < requests_.progress_at + stuck_time)
        return;
    stuck_ = true;
    if (std::exchange(stuck_said_, true)) return;
    say("the file system of --log-dir has taken nothing for " + base::to_string(stuck_time) +
        "; the job goes on, and lines are missing in its log files until it does");
}

std::optional<LogWriter::Time> LogWriter::next_due() const {
    if (stuck_ || requests_.waiting.empty() || !socket_) return std::nullopt;
    return requests_.progress_at + stuck_time;
}

void LogWriter::say(const std::string& line) {
    if (!news_.empty()) news_ += '\n';
    news_ += line;
}

void LogWriter::close() {
    closed_ = true;
    socket_.reset();
}

void LogWriter::kill() const {
    if (pid() != 0) ::kill(pid_, SIGKILL);
}

bool LogWriter::reap() {
    if (pid() == 0) return true;
    siginfo_t info{};
    const auto id = static_cast<id_t>(pid_);
    if (::waitid(P_PID, id, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return false;
    ended_ = true;
    if (!closed_) {
        receive();
        socket_.reset();
        say("the log writer (pid " + std::to_string(pid_) + ") ended early (" +
            to_string(exit_status_of(info)) +
            "); lines are missing in the files of --log-dir from now on");
    }
    return true;
}

void LogWriter::keep_watched(Poller& events, Poller::Tag tag) {
    if (!socket_) {
        watched_.reset();  // it left the poller by being closed
        return;
    }
    const std::uint32_t wanted = wants_to_send() ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (watched_ == wanted) return;
    if (watched_) {
        events.change(fd(), wanted, tag);
    } else {
        events.add(fd(), wanted, tag);
    }
    watched_ = wanted;
}

void LogWriter::await(const Wait& wait, const bool& hurried) const {
    const std::uint64_t all = requests_.asked;
    const Time hurried_end = Clock::now() + hurried_time;
    while (!completed(all) && !unresponsive()) {
        if (hurried && Clock::now() >= hurried_end) return;
        wait(hurried ? std::optional(hurried_end) : std::nullopt);
    }
}

std::string LogWriter::finish(const Wait& wait, const bool& hurried) {
    const auto wait_for_its_end = [&](std::chrono::milliseconds at_most) {
        const Time end = Clock::now() + at_most;
        while (!reap() && Clock::now() < end) wait(end);
    };
    await(wait, hurried);
    const bool all = completed(requests_.asked) && !unresponsive();
    close();
    if (all) wait_for_its_end(stuck_time);  // it closes its files, which may hang, too
    kill();
    wait_for_its_end(time_to_die);
    std::string loss = describe_loss();
    if (reap()) return loss;
    return loss + (loss.empty() ? "" : "; ") + "the log writer (pid " + std::to_string(pid_) +
           ") cannot be killed while the file system of --log-dir hangs, and is left there";
}

std::string LogWriter::describe_loss() const {
    std::uint64_t lines = lost_lines_;
    for (const Request& request : requests_.waiting) lines += request.lines;
    if (lines == 0) return {};
    return std::to_string(lines) + (lines == 1 ? " line is" : " lines are") +
           " missing in the files of --log-dir";
}

}  // namespace ddp::launcher
