#include "launcher/front/job_leash.hpp"

#include "base/deadline.hpp"
#include "base/frame.hpp"
#include "base/process/pidfd.hpp"
#include "base/unique_fd.hpp"
#include "contract/exit_code.hpp"
#include "launcher/hosts/start/job_description.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/signals.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::chrono::seconds time_for_description{60};

// Frames from stdin, which is /dev/null for all others from now on.
class Leash {
public:
    Leash() : input_(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) {
        const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (!input_ || !null || ::dup2(null.get(), STDIN_FILENO) < 0) {
            throw SystemError("take over standard input", errno);
        }
    }

    int fd() const { return input_.get(); }  // -1 when it has ended
    void end() { input_.reset(); }
    // To be called when the descriptor is readable.
    void receive() {
        std::array<char, 65536> bytes;
        const ssize_t got = ::read(input_.get(), bytes.data(), bytes.size());
        if (got > 0) {
            frames_.feed({bytes.data(), static_cast<std::size_t>(got)});
        } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            end();
        }
    }
    std::optional<FromStarter> next() {
        const auto frame = frames_.next();
        return frame ? std::optional(decode_from_starter(*frame)) : std::nullopt;
    }

private:
    base::UniqueFd input_;
    base::FrameReader frames_{max_starter_frame_bytes};
};

[[noreturn]] void fail_input(const std::string& what) {
    throw Error(std::string(from_stdin_option) + ": " + what +
                "; ddp-launch --hosts starts ddp-launch so on other hosts, and sends it a job");
}

JobDescription read_description(Leash& leash) {
    const auto deadline = base::Deadline::after(time_for_description);
    for (;;) {
        if (const auto message = leash.next()) {
            const auto* job = std::get_if<JobDescription>(&*message);
            if (job == nullptr) fail_input("a signal came before a job");
            if (job->greeting.empty()) fail_input("the job asks for no greeting");
            return *job;
        }
        if (leash.fd() < 0) fail_input("standard input has ended before a job had come");
        pollfd entry{leash.fd(), POLLIN, 0};
        ::poll(&entry, 1, deadline.poll_timeout(time_for_description));
        if (entry.revents != 0) leash.receive();
        if (deadline.passed()) fail_input("no job has come within 60 s");
    }
}

// The starter's options say all that this host's own variables for torchrun could.
void enter(const JobDescription& job) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (text.starts_with("PET_")) names.emplace_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) ::unsetenv(name.c_str());
    for (const std::string& entry : job.environment) {
        const std::size_t equals = entry.find('=');
        ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
    if (::chdir(job.folder.c_str()) == 0) return;
    throw Error("the folder " + job.folder +
                ", in which the job was started, cannot be used here: " + std::strerror(errno) +
                "; start it in a folder that all hosts have");
}

// Runs until the child has ended.
class Keeper {
public:
    Keeper(pid_t child, Leash leash, base::UniqueFd liveness)
        : child_(base::open_pidfd(child)),
          leash_(std::move(leash)),
          liveness_(std::move(liveness)) {
        if (!child_) throw SystemError("pidfd_open for the launcher", errno);
    }

    int run() {
        handle_frames();  // that came with the description
        for (;;) {
            std::array<pollfd, 3> events{
                {{child_.get(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}, {leash_.fd(), POLLIN, 0}}};
            const int wait = waiting_.empty() ? -1 : static_cast<int>(between_signals.count());
            if (::poll(events.data(), events.size(), wait) < 0 && errno != EINTR) cut();
            pass_waiting_on();
            while (const auto signal = signals_.next()) pass_on(*signal);
            if (events[2].revents != 0) handle_input();
            if (events[0].revents == 0) continue;
            siginfo_t info{};
            const auto id = static_cast<id_t>(child_.get());
            if (::waitid(P_PIDFD, id, &info, WEXITED) != 0) return contract::exit_error;
            return exit_status_of(info).exit_code();
        }
    }

private:
    using Clock = base::Deadline::Clock;

    // Of two of a kind that come to a process at once it sees one.
    static constexpr std::chrono::milliseconds between_signals{100};
    static constexpr std::size_t most_waiting = 16;

    void pass_on(int signal) {
        if (waiting_.size() < most_waiting) waiting_.push_back(signal);
        pass_waiting_on();
    }
    void pass_waiting_on() {
        const auto now = Clock::now();
        if (waiting_.empty() || now < next_signal_) return;
        base::signal_pidfd(child_.get(), waiting_.front());
        waiting_.pop_front();
        next_signal_ = now + between_signals;
    }
    void cut() {
        leash_.end();
        liveness_.reset();
    }
    void handle_input() {
        leash_.receive();
        handle_frames();
        if (leash_.fd() < 0) cut();
    }
    void handle_frames() {
        try {
            while (const auto message = leash_.next()) {
                const auto* passed = std::get_if<PassedSignal>(&*message);
                if (passed != nullptr) pass_on(passed->signal);
            }
        } catch (const UsageError&) {
            cut();  // no starter speaks so
        }
    }

    base::UniqueFd child_;
    Leash leash_;
    base::UniqueFd liveness_;
    std::deque<int> waiting_;  // to be passed on
    Clock::time_point next_signal_{};
    SignalReader signals_{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
};

RemotePart part_of(const JobDescription& job, base::UniqueFd liveness) {
    RemotePart part{
        job.options,
        contract::HostLink::of_starter(std::move(liveness), job.greeting, job.shows_status),
        job.token};
    part.arguments.emplace_back("--");
    part.arguments.insert(part.arguments.end(), job.command.begin(), job.command.end());
    return part;
}

}  // namespace

std::variant<RemotePart, int> take_remote_part() {
    if (::isatty(STDIN_FILENO) != 0) fail_input("standard input is a terminal");
    if (const std::string problem = base::missing_pidfd_calls(); !problem.empty()) {
        throw Error(problem);
    }
    Leash leash;
    const JobDescription job = read_description(leash);
    enter(job);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("pipe for the leash", errno);
    base::UniqueFd front_end(ends[0]);
    base::UniqueFd keeper_end(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) throw SystemError("fork the launcher", errno);
    if (child == 0) {
        leash.end();
        keeper_end.reset();
        return part_of(job, std::move(front_end));
    }
    front_end.reset();
    return Keeper(child, std::move(leash), std::move(keeper_end)).run();
}

}  // namespace ddp::launcher
