// The front's stdout or stderr: a queue in front of a descriptor that others may share, so that a
// reader who stops reading never stops the front from hearing signals. The descriptor's flags are
// left alone (they belong to the open file, not to us); instead nothing is written that would wait,
// and a terminal is opened a second time for us alone.
#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::launcher {

// Whether two descriptors are of one file, so that what is written to both has one order.
bool are_one_file(int a, int b);

class Output {
public:
    using Clock = std::chrono::steady_clock;

    explicit Output(int fd);

    int fd() const { return fd_; }
    bool is_terminal() const { return terminal_; }
    void write(std::string_view text);
    // Writes as much as goes without waiting. A reader that is gone (EPIPE) ends this output: it
    // swallows what is left and all that follows.
    void pump();
    void give_up();  // as if the reader were gone
    // The newlines that wait in the queue.
    std::size_t queued_lines() const;

    bool gone() const { return gone_; }
    bool reader_is_gone() const { return reader_is_gone_; }
    // Why it is gone, when not by EPIPE: an errno (a full disk), once; 0 otherwise.
    int take_problem() { return std::exchange(problem_, 0); }
    std::size_t queued_bytes() const { return queue_.size() - done_; }
    // How many bytes came in so far, and how many of them have left the queue, written or dropped.
    std::uint64_t accepted() const { return accepted_; }
    std::uint64_t settled() const { return accepted_ - queued_bytes(); }
    // Since when nothing could be written; only while bytes are queued.
    Clock::time_point stuck_since() const { return last_progress_; }

private:
    bool ready() const;

    int fd_;
    bool terminal_;
    base::UniqueFd own_;  // the terminal again, not blocking; empty: not to be had
    std::size_t chunk_;
    std::string queue_;
    std::uint64_t accepted_ = 0;
    std::size_t done_ = 0;
    bool gone_ = false;
    bool reader_is_gone_ = false;
    int problem_ = 0;
    Clock::time_point last_progress_ = Clock::now();
};

}  // namespace ddp::launcher
