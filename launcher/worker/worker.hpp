// A worker as the agent sees it: the process, the two pipes (or a terminal for one, or for both)
// that carry its output, the last lines of it, and how it ended.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/worker/last_lines.hpp"
#include "launcher/worker/worker_process.hpp"

#include <sys/ioctl.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp::launcher {

// The reading end of a worker's stdout or stderr; non-blocking.
class OutputPipe {
public:
    enum class State { more, empty, ended };
    struct Read {
        State state;
        std::string bytes;
    };

    explicit OutputPipe(base::UniqueFd fd) : fd_(std::move(fd)) {}
    bool open() const { return static_cast<bool>(fd_); }
    int fd() const { return fd_.get(); }

    Read read();  // one read(); at end of file the pipe is closed
    void close() { fd_.reset(); }

private:
    base::UniqueFd fd_;
};

struct Worker {
    using Clock = std::chrono::steady_clock;

    int local_rank;
    WorkerProcess process;
    OutputPipe out;
    OutputPipe err;
    std::optional<ExitStatus> ended;
    int stopped_with = 0;               // the last signal that we sent to stop it
    LastLines last_lines = {};          // of its stderr, or of its terminal
    base::UniqueFd terminal_end = {};   // keeps the terminal from hanging up before it has ended
    bool has_err = true;                // a pipe of its own for stderr
    bool stopped_for_debugger = false;  // it has stopped itself (--break-on-failure)
    // What is left of it, if anything, the sweep kills and reaps; its pid may be another's by now.
    bool left_to_sweep = false;
    Clock::time_point started_at = Clock::now();
    Clock::time_point asked_to_stop_at{};  // our first signal to stop it
    Clock::time_point ended_at{};

    bool running() const { return !ended && !left_to_sweep; }
    OutputPipe& pipe(Stream stream) { return stream == Stream::out ? out : err; }
};

// A pseudo-terminal for both outputs, or for stdout alone, where a C program then writes each line
// as it is printed.
struct TerminalForWorker {
    enum class Of : std::uint8_t { both, out };
    Of of;
    winsize window;
};

// Starts a program with stdin from `start.descriptors.in`, and pipes, or such a terminal, for those
// of the other two that are not given (-1). Throws SpawnError, SystemError.
Worker start_worker(WorkerStart start, int local_rank,
                    const std::optional<TerminalForWorker>& terminal = std::nullopt);

}  // namespace ddp::launcher
