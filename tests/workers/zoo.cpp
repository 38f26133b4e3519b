// A worker that is hard to get rid of: it ignores SIGTERM and starts a child, a child in a session
// of its own, a daemon (double fork) and a hopper, which forks and exits again and again. All of
// them keep a named pipe open for writing, so that a reader sees end of file when, and only when,
// all are gone.
//
//   zoo PIPE             start everything, write "worker <pid>" and so on into the pipe, wait
//   zoo PIPE daemonise   the same in a daemon; the worker itself ends with 0
//   zoo PIPE hopper N    one hop, by fork and exec; N are left
//
// Whatever goes wrong, all of it is over after two minutes.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

int witness = -1;

void report(const char* what) {
    const std::string line = std::string(what) + " " + std::to_string(::getpid()) + "\n";
    if (::write(witness, line.data(), line.size()) < 0) std::_Exit(1);
}

constexpr unsigned lifetime_s = 120;
constexpr int hops = 100'000;

[[noreturn]] void wait_long() {
    ::alarm(lifetime_s);
    for (;;) ::pause();
}

void start_child() {
    if (::fork() != 0) return;
    report("child");
    wait_long();
}

void start_session() {
    if (::fork() != 0) return;
    ::setsid();
    report("session");
    wait_long();
}

void start_daemon() {
    if (::fork() != 0) return;
    ::setsid();
    if (::fork() != 0) std::_Exit(0);
    if (::chdir("/") != 0) std::_Exit(1);
    report("daemon");
    wait_long();
}

void become_daemon() {
    if (::fork() != 0) std::_Exit(0);
    ::setsid();
    if (::fork() != 0) std::_Exit(0);
}

// Every hop is a new process with a new image; the old one is gone within about a millisecond.
[[noreturn]] void hop(const char* self, const char* pipe, int left) {
    const timespec pause{0, 300'000};
    ::nanosleep(&pause, nullptr);
    if (left == 0 || ::fork() != 0) std::_Exit(0);
    const std::string fewer = std::to_string(left - 1);
    ::execl(self, self, pipe, "hopper", fewer.c_str(), static_cast<char*>(nullptr));
    std::_Exit(1);
}

void start_hopper(const char* self, const char* pipe) {
    if (::fork() != 0) return;
    ::setsid();
    report("hopper");
    hop(self, pipe, hops);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 98;
    std::signal(SIGTERM, SIG_IGN);
    if (argc > 3) hop(argv[0], argv[1], std::atoi(argv[3]));  // the pipe came through exec
    witness = ::open(argv[1], O_WRONLY);
    if (witness < 0) return 97;
    if (argc > 2) become_daemon();
    start_child();
    start_session();
    start_daemon();
    start_hopper(argv[0], argv[1]);
    report("worker");
    wait_long();
}
