// Copies, close-on-exec, that pass through the fork to the agent.
#include "launcher/worker/handed_descriptors.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

namespace ddp::launcher {
namespace {

base::UniqueFd copy_of(int fd) {
    base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!copy) throw SystemError("copy descriptor " + std::to_string(fd), errno);
    return copy;
}

bool output_is_plain(const Options& options) {
    return options.logs.dir.empty() && options.logs.redirects.of(0) == Streams::none &&
           options.logs.tee.of(0) == Streams::none &&
           options.display.line_prefix_template.empty() && !options.display.local_ranks_filter &&
           !options.display.ranks_filter && !options.input.tty;
}

// A job in the background must not take the shell's input.
bool in_foreground() { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }
bool in_background() { return ::tcgetpgrp(STDIN_FILENO) >= 0 && !in_foreground(); }

bool input_is_wanted(const Options& options, int workers) {
    const bool terminal = ::isatty(STDIN_FILENO) != 0;
    switch (options.input.stdin_for) {
        case StdinFor::automatic:
            return workers == 1 && (!terminal || (in_foreground() && !options.input.tty));
        case StdinFor::rank:
        case StdinFor::all:
            return !terminal || !in_background();
        case StdinFor::none:
            break;
    }
    return false;
}

}  // namespace

ChildDescriptors HandedDescriptors::for_worker(int local_rank, int rank, int null,
                                               int inherited) const {
    const bool is_first = local_rank == 0;
    const bool gets_input = in && !in_for_all && (in_for ? rank == *in_for : is_first);
    return {.in = gets_input ? in.get() : null,
            .out = is_first ? out.get() : -1,
            .err = is_first ? err.get() : -1,
            .inherited = inherited};
}

HandedDescriptors hand_descriptors(const Options& options, int workers) {
    HandedDescriptors handed;
    handed.in_for = options.input.stdin_rank;
    if (input_is_wanted(options, workers)) handed.in = copy_of(STDIN_FILENO);
    handed.in_for_all = handed.in && options.input.stdin_for == StdinFor::all && workers > 1;
    if (workers != 1 || !output_is_plain(options)) return handed;
    if (::isatty(STDOUT_FILENO) != 0) handed.out = copy_of(STDOUT_FILENO);
    if (::isatty(STDERR_FILENO) != 0) handed.err = copy_of(STDERR_FILENO);
    return handed;
}

TerminalModes::TerminalModes(int fd) {
    termios now{};
    if (fd >= 0 && ::tcgetattr(fd, &now) == 0) before_ = now;
}

TerminalModes::~TerminalModes() {
    if (!before_) return;
    std::signal(SIGTTOU, SIG_IGN);  // we may be in the background by now
    ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

}  // namespace ddp::launcher
