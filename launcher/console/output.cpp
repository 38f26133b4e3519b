// Asks poll() before each write and writes no more than then fits for sure: a blocking descriptor
// that never blocks.
#include "launcher/console/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ddp::launcher {
namespace {

// The most that one write() may carry without waiting, once poll() said that it is writable.
std::size_t chunk_for(int fd, bool blocking_terminal) {
    constexpr std::size_t for_file = 1 << 20;   // a file never makes us wait
    constexpr std::size_t for_pipe = PIPE_BUF;  // pipe(7): writable means that so much fits
    // A writable terminal has room for some byte, and a newline takes two or a buffer of its own.
    constexpr std::size_t for_blocking_terminal = 1;
    struct stat status {};
    if (::fstat(fd, &status) != 0) return for_pipe;
    if (S_ISREG(status.st_mode)) return for_file;
    return blocking_terminal ? for_blocking_terminal : for_pipe;
}

// Fails without /proc, and for a user whom the terminal does not belong to (su).
base::UniqueFd open_again(int terminal) {
    const std::string path = "/proc/self/fd/" + std::to_string(terminal);
    return base::UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

bool are_one_file(int a, int b) {
    struct stat first {};
    struct stat second {};
    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

Output::Output(int fd)
    : fd_(fd),
      terminal_(::isatty(fd) != 0),
      own_(terminal_ ? open_again(fd) : base::UniqueFd()),
      chunk_(chunk_for(fd, terminal_ && !own_)) {}

bool Output::ready() const {
    pollfd entry{fd_, POLLOUT, 0};
    return ::poll(&entry, 1, 0) > 0;
}

void Output::write(std::string_view text) {
    if (gone_ || text.empty()) return;
    if (queued_bytes() == 0) last_progress_ = Clock::now();
    queue_.append(text);
    accepted_ += text.size();
    pump();
}

void Output::pump() {
    while (!gone_ && done_ < queue_.size() && ready()) {
        const std::size_t count = std::min(chunk_, queue_.size() - done_);
        const ssize_t written = ::write(own_ ? own_.get() : fd_, queue_.data() + done_, count);
        if (written > 0) {
            done_ += static_cast<std::size_t>(written);
            last_progress_ = Clock::now();
        } else if (written < 0 && errno == EAGAIN) {
            break;
        } else if (written < 0 && errno != EINTR) {
            reader_is_gone_ = errno == EPIPE || errno == ECONNRESET;
            problem_ = reader_is_gone_ ? 0 : errno;
            give_up();
        }
    }
    if (done_ == queue_.size()) {
        queue_.clear();
        done_ = 0;
    } else if (done_ > (std::size_t{1} << 20)) {
        queue_.erase(0, done_);
        done_ = 0;
    }
}

std::size_t Output::queued_lines() const {
    const auto begin = queue_.begin() + static_cast<std::ptrdiff_t>(done_);
    return static_cast<std::size_t>(std::count(begin, queue_.end(), '\n'));
}

void Output::give_up() {
    gone_ = true;
    queue_.clear();
    done_ = 0;
}

}  // namespace ddp::launcher
