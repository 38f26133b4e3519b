// A pseudo-terminal for a worker, so that programs behave as on a terminal (colours, progress bars,
// unbuffered lines): its stdout and stderr (--tty), or its stdout alone.
#pragma once

#include "base/unique_fd.hpp"

#include <sys/ioctl.h>

#include <optional>

namespace ddp::launcher {

struct WorkerTerminal {
    base::UniqueFd ours;     // does not block
    base::UniqueFd workers;  // newlines arrive as they are written, without "\r" before them
};

// Both throw SystemError.
WorkerTerminal make_worker_terminal(const winsize& window);
// One that changes no byte and answers nothing: for what a worker prints on stdout.
WorkerTerminal make_line_terminal(const winsize& window);

// The size of the first terminal among our stdout, stderr and stdin; else 80 columns of 24 lines.
winsize window_of_terminal();

}  // namespace ddp::launcher
