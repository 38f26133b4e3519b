// A process group of its own, so that what nvidia-smi has started ends with it.
#include "launcher/plan/nvidia_smi.hpp"

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_answer{2000};
constexpr milliseconds time_to_die{500};
constexpr std::size_t most_bytes = std::size_t{1} << 20;

// 0: it could not be started.
pid_t start(const std::string& program, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    std::string path = program;
    std::string list = "-L";
    const std::array<char*, 3> arguments{path.data(), list.data(), nullptr};
    pid_t pid = 0;
    if (::posix_spawn(&pid, path.c_str(), &actions, &attributes, arguments.data(), environ) != 0) {
        pid = 0;
    }
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    return pid;
}

// Until the end of file. Nothing when that does not come in time.
std::optional<std::string> read_all(int fd, const base::Deadline& deadline) {
    std::string text;
    std::array<char, 4096> bytes;
    while (text.size() < most_bytes) {
        pollfd entry{fd, POLLIN, 0};
        if (::poll(&entry, 1, deadline.poll_timeout()) <= 0) {
            if (deadline.passed()) return std::nullopt;
            continue;
        }
        const ssize_t got = ::read(fd, bytes.data(), bytes.size());
        if (got <= 0) return text;
        text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return text;
}

// Whether it has ended by itself and with 0. One that cannot even be killed is left behind.
bool end_well(pid_t pid, const base::Deadline& deadline) {
    const auto ended = [pid](int& status) { return ::waitpid(pid, &status, WNOHANG) != 0; };
    constexpr int step_ms = 5;
    int status = 1;
    while (!deadline.passed()) {
        if (ended(status)) return status == 0;
        ::poll(nullptr, 0, step_ms);
    }
    ::kill(-pid, SIGKILL);
    const auto dead_by = base::Deadline::after(time_to_die);
    while (!ended(status) && !dead_by.passed()) ::poll(nullptr, 0, step_ms);
    return false;
}

// "GPU 0: NVIDIA RTX A2000 (UUID: GPU-...)"; parts of one (MIG) stand below it, indented.
std::size_t count_lines(std::string_view text) {
    std::size_t count = 0;
    while (!text.empty()) {
        if (text.starts_with("GPU ")) ++count;
        const std::size_t end = text.find('\n');
        if (end == text.npos) break;
        text.remove_prefix(end + 1);
    }
    return count;
}

}  // namespace

std::optional<std::size_t> count_listed_gpus(const std::string& program) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
    const base::UniqueFd out(ends[0]);
    base::UniqueFd write_end(ends[1]);
    const auto deadline = base::Deadline::after(time_to_answer);
    const pid_t pid = start(program, write_end.get());
    write_end.reset();
    if (pid == 0) return std::nullopt;
    const auto text = read_all(out.get(), deadline);
    if (!end_well(pid, deadline) || !text) return std::nullopt;
    return count_lines(*text);
}

}  // namespace ddp::launcher
