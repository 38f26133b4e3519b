// Reads one buffer a pipe and event, so that a worker that talks much does not starve the others.
#include "launcher/agent/attempt/relay.hpp"

#include "launcher/console/output_rules.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

// What may be on its way to the console: 1 MiB a rank, both streams together, and less when there
// are many, so that it stays bounded for all.
std::size_t most_in_flight(std::size_t workers) {
    constexpr std::size_t of_all = std::size_t{16} << 20;
    constexpr std::size_t least = std::size_t{64} << 10;
    constexpr std::size_t most = std::size_t{512} << 10;
    return std::clamp(of_all / (2 * workers), least, most);
}

constexpr std::size_t tag_index(Stream stream) { return stream == Stream::out ? 0 : 1; }

}  // namespace

Relay::Relay(Channel& channel, std::vector<Worker>& workers, const Options& options,
             LogWriter& logs)
    : channel_(channel), workers_(workers), options_(options), logs_(logs) {}

void Relay::hold(bool hold, Poller& events, Poller::Tag tag) {
    if (hold == std::exchange(held_, hold)) return;
    const std::uint32_t wanted = hold ? 0U : EPOLLIN;
    events.change(fd(), wanted, tag);
}

void Relay::begin_attempt(int workers, int first_rank) {
    routes_.clear();
    routes_.resize(static_cast<std::size_t>(workers));
    for (int rank = 0; rank < workers; ++rank) {
        for (const Stream stream : {Stream::out, Stream::err}) {
            route(static_cast<std::size_t>(rank), stream).shown =
                !closed_[tag_index(stream)] &&
                is_shown(options_, {rank, first_rank + rank}, stream);
        }
    }
}

void Relay::add_pipes_of(std::size_t worker) {
    for (const Stream stream : {Stream::out, Stream::err}) {
        if (workers_[worker].pipe(stream).open()) watch(worker, stream);
    }
}

void Relay::watch(std::size_t worker, Stream stream) {
    pipes_.add(workers_[worker].pipe(stream).fd(), EPOLLIN, worker * 2 + tag_index(stream));
}

void Relay::relay_ready() {
    for (const Poller::Tag tag : pipes_.wait(Poller::Clock::now())) {
        if (logs_.full()) return;
        relay(tag / 2, tag % 2 == 0 ? Stream::out : Stream::err);
    }
}

// A pipe that ends is closed and so leaves the poller by itself: nobody else has this end of it.
OutputPipe::State Relay::relay(std::size_t index, Stream stream) {
    Worker& worker = workers_[index];
    OutputPipe::Read read = worker.pipe(stream).read();
    if (!read.bytes.empty()) {
        logs_.append(worker.local_rank, stream, read.bytes);
        // Without a pipe of its own stderr is the terminal that stdout is.
        if (stream == Stream::err || !worker.has_err) worker.last_lines.feed(read.bytes);
        send(index, stream, std::move(read.bytes));
    }
    if (read.state == OutputPipe::State::ended) send(index, stream, {});
    return read.state;
}

void Relay::send(std::size_t index, Stream stream, std::string bytes) {
    Route& from = route(index, stream);
    if (!from.shown || !channel_.open()) return;
    from.in_flight += bytes.size();
    channel_.queue(OutputMessage{stream, workers_[index].local_rank, std::move(bytes)});
    OutputPipe& pipe = workers_[index].pipe(stream);
    if (pipe.open() && !from.waiting && from.in_flight > most_in_flight(workers_.size())) {
        from.waiting = true;
        pipes_.remove(pipe.fd());
    }
}

void Relay::on_shown(const ShownMessage& message) {
    const auto index = static_cast<std::size_t>(message.local_rank);
    if (index >= workers_.size()) return;
    Route& from = route(index, message.stream);
    from.in_flight -= std::min<std::size_t>(from.in_flight, message.bytes);
    if (!from.waiting || from.in_flight > most_in_flight(workers_.size())) return;
    from.waiting = false;
    if (workers_[index].pipe(message.stream).open()) watch(index, message.stream);
}

void Relay::stop_showing(Stream stream) {
    closed_[tag_index(stream)] = true;
    for (std::size_t index = 0; index < routes_.size(); ++index) {
        Route& from = route(index, stream);
        from.shown = false;
        const bool waiting = std::exchange(from.waiting, false);
        if (waiting && workers_[index].pipe(stream).open()) watch(index, stream);
    }
}

bool Relay::drain() {
    bool all = true;
    for (const Stream stream : {Stream::err, Stream::out}) {
        for (std::size_t index = 0; index < workers_.size(); ++index) {
            all = drain(index, stream) && all;
        }
    }
    return all;
}

bool Relay::drain(std::size_t index, Stream stream) {
    OutputPipe& pipe = workers_[index].pipe(stream);
    while (pipe.open()) {
        if (logs_.full() || (route(index, stream).waiting && channel_.open())) return false;
        if (relay(index, stream) != OutputPipe::State::empty) continue;
        pipe.close();
        send(index, stream, {});
    }
    return true;
}

}  // namespace ddp::launcher
