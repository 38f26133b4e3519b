// timer SECONDS COMMAND...: runs a command in a session of its own, its output unread, and prints
// the microseconds from before its spawn to its end. Exit code 1: the command failed; 3: it was not
// done in time, and its process group was killed.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int exit_usage = 2;
constexpr int exit_too_long = 3;

pid_t spawn(char** command) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t pid = -1;
    return ::posix_spawnp(&pid, command[0], &files, &attributes, command, environ) == 0 ? pid : -1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return exit_usage;
    const int limit_ms = static_cast<int>(std::atof(argv[1]) * 1000);
    const auto begin = std::chrono::steady_clock::now();
    const pid_t pid = spawn(argv + 2);
    if (pid < 0) return exit_usage;
    pollfd end{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
    const bool in_time = ::poll(&end, 1, limit_ms) == 1;
    if (!in_time) ::kill(-pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    const auto time = std::chrono::steady_clock::now() - begin;
    if (!in_time) return exit_too_long;
    const std::chrono::duration<double, std::micro> microseconds = time;
    std::printf("%.1f\n", microseconds.count());
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
