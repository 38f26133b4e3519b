// Positions are counted from the first byte that ever came, so that the spool can be cut at its
// front while pipes are at different places in it.
#include "launcher/agent/attempt/input_relay.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr Poller::Tag source_tag = ~Poller::Tag{0};

// The same file, without its flags; a socket cannot be opened, nor what belongs to somebody else.
base::UniqueFd open_again(int fd) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    base::UniqueFd again(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    const off_t at = ::lseek(fd, 0, SEEK_CUR);
    if (again && at > 0) ::lseek(again.get(), at, SEEK_SET);
    return again;
}

bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

InputRelay::InputRelay(int source) : source_(open_again(source)) {
    if (!source_) source_.reset(::fcntl(source, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!source_) throw SystemError("copy the launcher's input for --stdin=all", errno);
    struct stat status {};
    ::fstat(source_.get(), &status);
    is_socket_ = S_ISSOCK(status.st_mode);
    try {
        events_.add(source_.get(), EPOLLIN, source_tag);
        events_.remove(source_.get());
    } catch (const SystemError& error) {
        if (error.code() != EPERM) throw;
        always_ready_ = true;  // files, folders, /dev/null
    }
}

base::UniqueFd InputRelay::add_worker() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw SystemError("pipe for the input of local rank " + std::to_string(sinks_.size()) +
                              (errno == EMFILE ? " (see ulimit -n)" : ""),
                          errno);
    }
    base::UniqueFd workers(ends[0]);
    Sink& sink = sinks_.emplace_back();
    sink.pipe.reset(ends[1]);
    if (::fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) throw SystemError("fcntl of a pipe", errno);
    events_.add(ends[1], 0, sinks_.size() - 1);
    watch_source();
    return workers;
}

bool InputRelay::wanted() const {
    return std::any_of(sinks_.begin(), sinks_.end(),
                       [](const Sink& sink) { return static_cast<bool>(sink.pipe); });
}

// Somebody has all that came, and there is no room for more.
bool InputRelay::starving() const {
    return !ended_ && !has_room() && std::any_of(sinks_.begin(), sinks_.end(), [&](const Sink& s) {
        return s.pipe && s.taken == end();
    });
}

// It need not hurry before somebody waits for it.
InputRelay::Time InputRelay::cut_off_at(const Sink& sink) const {
    return std::max(sink.stuck_since, *starving_since_) + patience;
}

std::optional<InputRelay::Time> InputRelay::wakes_at() const {
    if (ended_ || !wanted()) return std::nullopt;
    if (always_ready_ && has_room()) return Time{};
    if (!starving_since_) return std::nullopt;
    std::optional<Time> due;
    for (const Sink& sink : sinks_) {
        if (sink.pipe && sink.waiting) due = std::min(due.value_or(Time::max()), cut_off_at(sink));
    }
    return due;
}

void InputRelay::run(Time now) {
    for (const Poller::Tag tag : events_.wait(Time{})) {
        if (tag == source_tag) continue;
        Sink& sink = sinks_[tag];
        // Nothing is asked of this pipe, so that the event says that nobody reads it any more.
        if (sink.pipe && !sink.waiting) sink.pipe.reset();
    }
    constexpr int most_rounds = 16;
    for (int round = 0; round < most_rounds; ++round) {
        for (std::size_t rank = 0; rank < sinks_.size(); ++rank) deliver(rank, now);
        trim();
        cut_off_stuck(now);
        if (ended_ || !wanted() || !has_room() || !read_some()) break;
    }
    if (ended_) {
        for (std::size_t rank = 0; rank < sinks_.size(); ++rank) deliver(rank, now);
        trim();
    }
    watch_source();
}

// Whether it is worth to look again.
bool InputRelay::read_some() {
    std::array<char, 64 * 1024> bytes;
    const std::size_t room = std::min(bytes.size(), spool_bytes - spool_.size());
    if (!is_readable(source_.get())) return false;
    const ssize_t got = is_socket_ ? ::recv(source_.get(), bytes.data(), room, MSG_DONTWAIT)
                                   : ::read(source_.get(), bytes.data(), room);
    if (got > 0) {
        spool_.append(bytes.data(), static_cast<std::size_t>(got));
        return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    ended_ = true;  // a terminal that has gone is an end, too
    return false;
}

void InputRelay::deliver(std::size_t rank, Time now) {
    Sink& sink = sinks_[rank];
    if (!sink.pipe) return;
    bool full = false;
    while (sink.taken < end() && !full) {
        const std::size_t from = sink.taken - start_;
        const ssize_t put = ::write(sink.pipe.get(), spool_.data() + from, spool_.size() - from);
        if (put > 0) {
            sink.taken += static_cast<std::uint64_t>(put);
            sink.stuck_since = now;
        } else if (put < 0 && errno == EAGAIN) {
            full = true;
        } else if (put == 0 || errno != EINTR) {
            return sink.pipe.reset();  // it has closed its input
        }
    }
    if (ended_ && !full) return sink.pipe.reset();
    if (full == sink.waiting) return;
    if (full) sink.stuck_since = now;
    sink.waiting = full;
    events_.change(sink.pipe.get(), full ? std::uint32_t{EPOLLOUT} : 0U, rank);
}

void InputRelay::trim() {
    std::uint64_t least = end();
    for (const Sink& sink : sinks_) {
        if (sink.pipe) least = std::min(least, sink.taken);
    }
    spool_.erase(0, least - start_);
    start_ = least;
}

void InputRelay::cut_off_stuck(Time now) {
    if (!starving()) return starving_since_.reset();
    if (!starving_since_) starving_since_ = now;
    for (std::size_t rank = 0; rank < sinks_.size(); ++rank) {
        Sink& sink = sinks_[rank];
        if (!sink.pipe || !sink.waiting || now < cut_off_at(sink)) continue;
        sink.pipe.reset();
        notice_ += (notice_.empty() ? "rank " : "\nrank ") + std::to_string(rank) +
                   " has not read its input for " + std::to_string(patience.count()) +
                   " s while others wait for more (--stdin=all): its input ends here";
    }
    trim();
    if (!starving()) starving_since_.reset();
}

void InputRelay::watch_source() {
    if (always_ready_) return;
    const bool watch = !ended_ && wanted() && has_room();
    if (watch == watched_) return;
    watched_ = watch;
    if (watch) {
        events_.add(source_.get(), EPOLLIN, source_tag);
    } else {
        events_.remove(source_.get());
    }
}

std::string InputRelay::take_notice() { return std::exchange(notice_, {}); }

}  // namespace ddp::launcher
