// Reads one buffer a pipe and event, so that a worker that talks much does not starve the others.
#include "launcher/relay.hpp"

#include <sys/epoll.h>

#include <utility>

namespace ddp::launcher {

void Relay::add_pipes_of(std::size_t worker) {
    const Worker& added = workers_[worker];
    if (added.out.open()) pipes_.add(added.out.fd(), EPOLLIN, worker * 2);
    if (added.err.open()) pipes_.add(added.err.fd(), EPOLLIN, worker * 2 + 1);
}

void Relay::relay_ready() {
    for (const Poller::Tag tag : pipes_.wait(Poller::Clock::now())) {
        if (paused()) return;
        relay(workers_[tag / 2], tag % 2 == 0 ? Stream::out : Stream::err);
    }
}

// Whether there may be more to read. A pipe that ends is closed and so leaves the poller by itself:
// nobody else has this end of it.
bool Relay::relay(Worker& worker, Stream stream) {
    OutputPipe::Read read = worker.pipe(stream).read();
    if (!read.lines.empty()) {
        channel_.send(LineMessage{stream, worker.local_rank, std::move(read.lines)});
    }
    return read.state == OutputPipe::State::more;
}

void Relay::drain() {
    for (Worker& worker : workers_) {
        for (const Stream stream : {Stream::out, Stream::err}) {
            OutputPipe& pipe = worker.pipe(stream);
            while (channel_.open() && pipe.open() && relay(worker, stream)) {
                channel_.flush_down_to(Channel::high_water_bytes);
            }
            if (!pipe.open()) continue;
            const std::string rest = pipe.close();
            if (!rest.empty()) channel_.send(LineMessage{stream, worker.local_rank, rest});
        }
    }
}

}  // namespace ddp::launcher
