// posix_spawn() and not fork(): the program may have threads, and much memory. The result comes on
// a socket; the exit status, which a SIGCHLD handler of the program may have taken, is only asked
// for when ddp-launch said nothing.
#include "launch/launcher_process.hpp"

#include "base/deadline.hpp"
#include "base/frame.hpp"
#include "contract/exit_code.hpp"
#include "contract/host_link.hpp"
#include "launch/child_process.hpp"
#include "launch/worker_call.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>

namespace ddp::launching {
namespace {

using base::Deadline;
using base::UniqueFd;
using contract::LaunchEnd;

// Where ddp-launch finds its two descriptors; all above are closed for it.
constexpr int liveness_fd_in_child = 3;
constexpr int results_in_child = 4;
// After the grace, how long ddp-launch may take to end.
constexpr std::chrono::seconds launcher_time{30};
constexpr std::chrono::seconds end_time{10};

// Above the numbers that they get in the child.
UniqueFd move_up(UniqueFd fd, const char* what) {
    UniqueFd high(fd ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, results_in_child + 1) : -1);
    if (!high) throw SystemError(std::string("launch: ") + what, errno);
    return high;
}

struct Link {
    UniqueFd liveness_fd;
    UniqueFd ours;
    UniqueFd theirs;
};

Link make_link() {
    std::array<int, 2> ends{};
    UniqueFd liveness_fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    liveness_fd = move_up(std::move(liveness_fd), "pidfd_open of this process");
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw SystemError("launch: socketpair", errno);
    }
    Link link{std::move(liveness_fd), UniqueFd(ends[0]), UniqueFd(ends[1])};
    link.theirs = move_up(std::move(link.theirs), "fcntl of a socket");
    return link;
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

std::vector<std::string> environment_with(std::vector<std::string> entries) {
    std::vector<std::string> result = std::move(entries);
    const std::size_t given = result.size();
    const auto overridden = [&](std::string_view name) {
        return name == worker_call_variable ||
               std::any_of(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(given),
                           [&](const std::string& entry) { return name_of(entry) == name; });
    };
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        if (!overridden(name_of(*entry))) result.emplace_back(*entry);
    }
    return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

// Destroyed at the end of a spawn, whatever came of it.
struct SpawnSettings {
    SpawnSettings() {
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
    }
    ~SpawnSettings() {
        ::posix_spawn_file_actions_destroy(&actions);
        ::posix_spawnattr_destroy(&attributes);
    }
    SpawnSettings(const SpawnSettings&) = delete;
    SpawnSettings& operator=(const SpawnSettings&) = delete;

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
};

ChildProcess spawn(const LauncherCommand& command, const Link& link) {
    std::vector<std::string> words{command.path};
    words.insert(words.end(), command.arguments.begin(), command.arguments.end());
    std::vector<std::string> variables = command.environment;
    variables.push_back(std::string(contract::host_link_variable) + "=" +
                        std::to_string(liveness_fd_in_child) + ":" +
                        std::to_string(results_in_child) + ":" +
                        std::to_string(static_cast<int>(command.failure_policy)));
    variables = environment_with(std::move(variables));
    SpawnSettings settings;
    ::posix_spawn_file_actions_adddup2(&settings.actions, link.liveness_fd.get(),
                                       liveness_fd_in_child);
    ::posix_spawn_file_actions_adddup2(&settings.actions, link.theirs.get(), results_in_child);
    ::posix_spawn_file_actions_addclosefrom_np(&settings.actions, results_in_child + 1);
    // A thread that blocks signals does so for itself, not for the job.
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&settings.attributes, &none);
    ::posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t pid = -1;
    const int code =
        ::posix_spawn(&pid, command.path.c_str(), &settings.actions, &settings.attributes,
                      pointers_to(words).data(), pointers_to(variables).data());
    if (code != 0) throw SystemError("launch: cannot start " + command.path, code);
    return ChildProcess(pid);
}

class Job {
public:
    explicit Job(const LauncherCommand& command) : path_(command.path) {
        Link link = make_link();
        results_ = std::move(link.ours);
        launcher_ = spawn(command, link);
    }
    ~Job() {
        if (!reaped_) {
            launcher_.signal(SIGKILL);
            launcher_.reap();
        }
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    // Whether it has ended by then.
    bool wait(const Deadline& deadline);
    void signal(int signal) const { launcher_.signal(signal); }
    LaunchEnd end();

private:
    void read_results();

    std::string path_;
    ChildProcess launcher_;
    UniqueFd results_;  // closed when there is no more
    base::FrameReader reader_{contract::max_launch_end_bytes};
    std::optional<LaunchEnd> end_;
    bool reaped_ = false;
};

void Job::read_results() {
    std::array<char, 16384> bytes;
    ssize_t got = 0;
    while ((got = ::recv(results_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
        reader_.feed({bytes.data(), static_cast<std::size_t>(got)});
    }
    if (got == 0) results_.reset();
    if (const auto payload = reader_.next()) end_ = contract::parse_launch_end(*payload);
}

bool Job::wait(const Deadline& deadline) {
    while (results_) {
        std::array<pollfd, 2> events{{{launcher_.fd(), POLLIN, 0}, {results_.get(), POLLIN, 0}}};
        ::poll(events.data(), events.size(), deadline.poll_timeout());
        if (events[1].revents != 0) read_results();
        if (events[0].revents != 0) break;
        if (deadline.passed()) return false;
    }
    // Whoever has closed the socket is about to end. In case the pidfd was opened so late that it
    // is a stranger's, this wait is over soon, too.
    launcher_.wait(Deadline::after(end_time));
    if (results_) read_results();
    return true;
}

LaunchEnd Job::end() {
    reaped_ = true;
    const auto status = launcher_.wait(Deadline::after(end_time)) ? launcher_.reap() : std::nullopt;
    if (end_) return *end_;
    if (!status) {
        return {.exit_code = contract::exit_error,
                .report = path_ + " is gone and has left no result; was it killed, and by whom?"};
    }
    return {.exit_code = status->ok() ? contract::exit_error : status->exit_code(),
            .report = path_ + " ended without a result: " + contract::to_string(*status)};
}

}  // namespace

LauncherResult run_launcher(const LauncherCommand& command, const LaunchOptions& options) {
    constexpr std::chrono::milliseconds for_ever = std::chrono::milliseconds::max();
    Job job(command);
    bool timed_out = false;
    if (!job.wait(Deadline::after(options.timeout.count() > 0 ? options.timeout : for_ever))) {
        timed_out = true;
        job.signal(SIGTERM);
        if (!job.wait(Deadline::after(options.shutdown_timeout + launcher_time))) {
            job.signal(SIGKILL);
            job.wait(Deadline::after(end_time));
        }
    }
    LaunchEnd end = job.end();
    if (end.kind == LaunchEnd::Kind::wrong_command_line) {
        throw UsageError("launch: ddp-launch refuses: " + end.report);
    }
    if (end.exit_code == contract::exit_ok) timed_out = false;  // it was over just then
    if (timed_out) {
        end.report = "still ran after " + base::to_string(options.timeout) + " and was stopped\n" +
                     end.report;
    }
    LauncherResult result{{end.exit_code, timed_out, std::move(end.report)}, std::move(end.ends)};
    for (contract::HostEnd& host : end.hosts) {
        result.job.hosts.push_back({std::move(host.host), host.exit_code});
    }
    return result;
}

}  // namespace ddp::launching
