#include "launcher/worker/worker_terminal.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace ddp::launcher {
namespace {

// A new pair; `change` makes its modes what they are to be.
template <class Change>
WorkerTerminal open_terminal(const winsize& window, Change change) {
    WorkerTerminal terminal{base::UniqueFd(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), {}};
    if (!terminal.ours) throw SystemError("open a pseudo-terminal", errno);
    const int ours = terminal.ours.get();
    if (::unlockpt(ours) != 0) throw SystemError("unlock a pseudo-terminal", errno);
    terminal.workers.reset(::ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!terminal.workers) throw SystemError("open the other end of a pseudo-terminal", errno);
    termios modes{};
    if (::tcgetattr(terminal.workers.get(), &modes) != 0) throw SystemError("tcgetattr", errno);
    change(modes);
    if (::tcsetattr(terminal.workers.get(), TCSANOW, &modes) != 0) {
        throw SystemError("tcsetattr", errno);
    }
    if (::ioctl(ours, TIOCSWINSZ, &window) != 0) throw SystemError("set a window size", errno);
    if (::fcntl(ours, F_SETFL, O_NONBLOCK) != 0) throw SystemError("fcntl of a terminal", errno);
    return terminal;
}

}  // namespace

WorkerTerminal make_worker_terminal(const winsize& window) {
    return open_terminal(window,
                         [](termios& modes) { modes.c_oflag &= ~static_cast<tcflag_t>(ONLCR); });
}

WorkerTerminal make_line_terminal(const winsize& window) {
    return open_terminal(window, [](termios& modes) {
        modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
        modes.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
    });
}

winsize window_of_terminal() {
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO}) {
        winsize window{};
        if (::ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) return window;
    }
    return {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
}

}  // namespace ddp::launcher
