#include "doctor/child.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

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
    ProgramEnd end;
    if (!read_all(from.get(), Clock::now() + limit, end.output)) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    return end;
}

}  // namespace

std::optional<std::string> in_child(std::chrono::milliseconds limit,
                                    const std::function<std::string()>& work) {
    ProgramEnd end = run(limit, [&](int to) {
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

ProgramEnd run_program(const std::vector<std::string>& argv, std::chrono::milliseconds limit) {
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return run(limit, [&](int to) {
        const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
        ::dup2(to, STDOUT_FILENO);
        ::dup2(to, STDERR_FILENO);
        ::execvp(words[0], words.data());
        ::_exit(127);
    });
}

}  // namespace ddp::doctor
