// The pipes of a worker. Our ends do not block; the worker's are plain, as programs expect.
#include "launcher/worker/worker.hpp"

#include "launcher/worker/worker_terminal.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ddp::launcher {
namespace {

struct Pipe {
    base::UniqueFd read_end;
    base::UniqueFd write_end;
};

Pipe make_pipe(int local_rank) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw SystemError("pipe for the output of local rank " + std::to_string(local_rank) +
                              (errno == EMFILE ? " (see ulimit -n)" : ""),
                          errno);
    }
    Pipe pipe{base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
    // Our end alone: the flag belongs to the end, and the worker's must block as any pipe does.
    if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) throw SystemError("fcntl of a pipe", errno);
    return pipe;
}

// Empty where no pseudo-terminal can be had: a pipe does as well, but for lines that come late.
Pipe make_line_pipe(const winsize& window) {
    try {
        WorkerTerminal ends = make_line_terminal(window);
        return {std::move(ends.ours), std::move(ends.workers)};
    } catch (const SystemError&) {
        return {};
    }
}

}  // namespace

OutputPipe::Read OutputPipe::read() {
    std::array<char, 64 * 1024> bytes;
    const ssize_t got = ::read(fd_.get(), bytes.data(), bytes.size());
    if (got > 0) return {State::more, std::string(bytes.data(), static_cast<std::size_t>(got))};
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {State::empty, {}};
    close();  // EIO, too: nobody has the other end of the terminal any more
    return {State::ended, {}};
}

Worker start_worker(WorkerStart start, int local_rank,
                    const std::optional<TerminalForWorker>& terminal) {
    if (terminal && terminal->of == TerminalForWorker::Of::both) {
        WorkerTerminal ends = make_worker_terminal(terminal->window);
        start.descriptors.out = ends.workers.get();
        start.descriptors.err = ends.workers.get();
        start.descriptors.out_is_terminal = true;
        Worker worker{local_rank, WorkerProcess::start(start), OutputPipe(std::move(ends.ours)),
                      OutputPipe(base::UniqueFd()), std::nullopt};
        worker.has_err = false;
        worker.terminal_end = std::move(ends.workers);
        return worker;
    }
    Pipe out;
    if (start.descriptors.out < 0 && terminal) out = make_line_pipe(terminal->window);
    start.descriptors.out_is_line_terminal = static_cast<bool>(out.write_end);
    if (start.descriptors.out < 0 && !out.write_end) out = make_pipe(local_rank);
    Pipe err = start.descriptors.err < 0 ? make_pipe(local_rank) : Pipe{};
    if (out.write_end) start.descriptors.out = out.write_end.get();
    if (err.write_end) start.descriptors.err = err.write_end.get();
    return {local_rank, WorkerProcess::start(start), OutputPipe(std::move(out.read_end)),
            OutputPipe(std::move(err.read_end)), std::nullopt};
}

}  // namespace ddp::launcher
