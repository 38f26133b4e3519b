// Signals arrive by signalfd. Blocked ones are inherited through fork and exec, which is why a
// child has to undo all of this.
#include "launcher/process/signals.hpp"

#include <ddp/error.hpp>

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace ddp::launcher {

SignalReader::SignalReader(std::span<const int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) {
        struct sigaction action {};
        ::sigaction(signal, nullptr, &action);
        if (action.sa_handler != SIG_IGN) sigaddset(&set, signal);
    }
    if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) throw SystemError("block signals", errno);
    fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw SystemError("signalfd", errno);
}

std::optional<int> SignalReader::next() {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
}

void prepare_signals(std::span<const int> stop_signals) {
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
    for (const int signal : {SIGCHLD, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_DFL);
    for (const int signal : stop_signals) {
        const bool is_own = signal == SIGHUP || signal == SIGPIPE || signal == SIGXFSZ;
        if (!is_own) std::signal(signal, SIG_DFL);
    }
}

sigset_t ignored_signals() {
    sigset_t ignored;
    sigemptyset(&ignored);
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
        struct sigaction action {};
        const bool known = ::sigaction(signal, nullptr, &action) == 0;
        if (known && action.sa_handler == SIG_IGN) sigaddset(&ignored, signal);
    }
    return ignored;
}

void reset_signals(const sigset_t& ignored) {
    struct sigaction fresh {};
    fresh.sa_handler = SIG_DFL;
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
        if (sigismember(&ignored, signal) == 1) ::sigaction(signal, &fresh, nullptr);
    }
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace ddp::launcher
