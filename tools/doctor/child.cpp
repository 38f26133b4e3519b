#include "doctor/child.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/unique_fd.hpp"

namespace ddp::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// To its end, or until the deadline.
bool read_all(int fd, Clock::time_point deadline, std::string& output) {
    for (std::array<char, 4096> bytes;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd waiting{fd, POLLIN, 0};
        const int ready = ::poll(&waiting, 1, left > 0 ? static_cast<int>(left) : 0);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        const ssize_t count = ::read(fd, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return true;
        output.append(bytes.data(), static_cast<std::size_t>(count));
    }
}

// Its status, once it has ended; nothing at the deadline.
std::optional<int> wait_for(pid_t child, Clock::time_point deadline) {
    for (;;) {
        int status = 0;
        const pid_t ended = ::waitpid(child, &status, WNOHANG);
        if (ended == child) return status;
        if (Clock::now() >= deadline) return std::nullopt;
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
}

// Runs `work`, which is given the end to write to and does not return, in a fork.
ProgramEnd run(std::chrono::milliseconds limit, const std::function<void(int)>& work) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("a pipe for a child", errno);
    const base::UniqueFd from(ends[0]);
    base::UniqueFd to(ends[1]);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) throw SystemError("starting a child", errno);
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        work(to.get());
        ::_exit(1);
    }
    to.reset();
    const auto deadline = Clock::now() + limit;
    ProgramEnd end;
    std::optional<int> status;
    if (read_all(from.get(), deadline, end.output)) status = wait_for(child, deadline);
    if (!status) {
        ::kill(child, SIGKILL);
        wait_for(child, Clock::now() + std::chrono::seconds{1});
        return end;
    }
    if (WIFEXITED(*status)) end.exit_code = WEXITSTATUS(*status);
    if (WIFSIGNALED(*status)) end.signal = WTERMSIG(*status);
    return end;
}

// In a child.
void hide(const std::vector<std::string>& prefixes) {
    std::vector<std::string> names;
    for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
        const std::string_view name = std::string_view(*one).substr(0, std::strcspn(*one, "="));
        const auto begins = [&](const std::string& prefix) { return name.starts_with(prefix); };
        if (std::ranges::any_of(prefixes, begins)) names.emplace_back(name);
    }
    for (const std::string& name : names) ::unsetenv(name.c_str());
}

void point_to_nothing(int fd, int flags) {
    const int nothing = ::open("/dev/null", flags | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, fd);
}

}  // namespace

std::optional<std::string> in_child(std::chrono::milliseconds limit,
                                    const std::function<std::string()>& work) {
    ProgramEnd end = run(limit, [&](int to) {
        point_to_nothing(STDOUT_FILENO, O_WRONLY);
        point_to_nothing(STDERR_FILENO, O_WRONLY);
        try {
            const std::string result = work();
            const auto written = ::write(to, result.data(), result.size());
            ::_exit(written == static_cast<ssize_t>(result.size()) ? 0 : 1);
        } catch (...) {
            ::_exit(1);
        }
    });
    if (end.exit_code != 0) return std::nullopt;
    return std::move(end.output);
}

ProgramEnd run_program(const std::vector<std::string>& argv, std::chrono::milliseconds limit,
                       const std::vector<std::string>& hidden) {
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return run(limit, [&](int to) {
        hide(hidden);
        point_to_nothing(STDIN_FILENO, O_RDONLY);
        ::dup2(to, STDOUT_FILENO);
        ::dup2(to, STDERR_FILENO);
        ::execvp(words[0], words.data());
        ::_exit(127);
    });
}

std::string describe(const ProgramEnd& end, std::chrono::seconds limit) {
    if (end.exit_code) return "exit code " + std::to_string(*end.exit_code);
    if (end.signal) return "signal " + std::to_string(*end.signal);
    return "not done in " + std::to_string(limit.count()) + " s";
}

}  // namespace ddp::doctor
