// A worker as the agent sees it: the process, the two pipes that carry its output, and how it
// ended.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/channel.hpp"
#include "launcher/exit_status.hpp"
#include "launcher/line_cutter.hpp"
#include "launcher/worker_process.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace ddp::launcher {

// The reading end of a worker's stdout or stderr; non-blocking.
class OutputPipe {
public:
    enum class State { more, empty, ended };
    struct Read {
        State state;
        std::string lines;  // whole ones, maybe none
    };

    explicit OutputPipe(base::UniqueFd fd) : fd_(std::move(fd)) {}
    bool open() const { return static_cast<bool>(fd_); }
    int fd() const { return fd_.get(); }

    // One read. At end of file the pipe is closed, and the lines are the unterminated rest.
    Read read();
    // The rest, when nobody is left who could write more.
    std::string close();

private:
    base::UniqueFd fd_;
    LineCutter cutter_;
};

struct Worker {
    using Clock = std::chrono::steady_clock;

    int local_rank;
    WorkerProcess process;
    OutputPipe out;
    OutputPipe err;
    std::optional<ExitStatus> ended;
    int stopped_with = 0;  // the last signal that we sent to stop it
    bool held = false;     // it has stopped itself for a debugger
    Clock::time_point started_at = Clock::now();
    Clock::time_point asked_to_stop_at{};  // our first signal to stop it
    Clock::time_point ended_at{};

    OutputPipe& pipe(Stream stream) { return stream == Stream::out ? out : err; }
};

// Starts a program with stdin from `start.descriptors.in`, and pipes for those of the other two
// that are not given (-1). Throws SpawnError, SystemError.
Worker start_worker(WorkerStart start, int local_rank);

}  // namespace ddp::launcher
