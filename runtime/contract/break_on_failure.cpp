// What the handler needs is made before: inside it only async-signal-safe calls are allowed.
#include "contract/break_on_failure.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace ddp::contract {
namespace {

constexpr std::array fatal_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

std::atomic_flag stopped = ATOMIC_FLAG_INIT;
std::string* error_path = nullptr;
// Enough to stop this process, and to write a line, after the stack itself has overflowed.
std::array<char, 64 * 1024> spare_stack;

std::string_view name_of(int signal) {
    switch (signal) {
        case SIGSEGV:
            return "SIGSEGV";
        case SIGBUS:
            return "SIGBUS";
        case SIGFPE:
            return "SIGFPE";
        case SIGILL:
            return "SIGILL";
        default:
            return "SIGABRT";
    }
}

// An error file that is there already says more.
void write_signal_to_error_file(int signal) {
    if (error_path == nullptr) return;
    const int fd = ::open(error_path->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return;
    for (const std::string_view part :
         {std::string_view(R"({"message": {"message": ")"), name_of(signal),
          std::string_view(R"(", "extraInfo": {"py_callstack": ""}}})")}) {
        if (::write(fd, part.data(), part.size()) < 0) break;
    }
    ::close(fd);
}

void stop_this_process() {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // for Yama, which lets only parents in
    ::raise(SIGSTOP);  // to this thread, which then goes no further
}

void on_fatal_signal(int signal) {
    const int saved = errno;
    if (!stopped.test_and_set()) {
        write_signal_to_error_file(signal);
        stop_this_process();
    }
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // comes when this returns, if the fault itself does not come first
    errno = saved;
}

}  // namespace

bool breaks_on_failure() noexcept {
    const char* value = std::getenv("DDP_BREAK_ON_FAILURE");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

void stop_for_debugger() noexcept {
    if (breaks_on_failure() && !stopped.test_and_set()) stop_this_process();
}

void do_not_stop_for_debugger() noexcept { stopped.test_and_set(); }

void stop_on_fatal_signals() {
    if (!breaks_on_failure()) return;
    const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (path != nullptr && *path != '\0') error_path = new std::string(path);  // for ever
    stack_t stack{};
    stack.ss_sp = spare_stack.data();
    stack.ss_size = spare_stack.size();
    ::sigaltstack(&stack, nullptr);
    for (const int signal : fatal_signals) {
        struct sigaction before {};
        ::sigaction(signal, nullptr, &before);
        if (before.sa_handler != SIG_DFL) continue;
        struct sigaction action {};
        action.sa_handler = &on_fatal_signal;
        action.sa_flags = SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        ::sigaction(signal, &action, nullptr);
    }
}

}  // namespace ddp::contract
