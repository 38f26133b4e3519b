// --stdin=all: what comes on the launcher's input goes to every worker, through a pipe each. What
// some have taken and others have not waits in one spool of 1 MiB; when that is full, nothing more
// is read, so that the writer waits as with any pipe. A worker that takes nothing for 5 s while
// others wait for more gets no more: its input ends. One that has closed its input is left out. The
// end of the input ends all of them.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/process/poller.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class InputRelay {
public:
    using Clock = Poller::Clock;
    using Time = Clock::time_point;

    static constexpr std::size_t spool_bytes = std::size_t{1} << 20;
    static constexpr std::chrono::seconds patience{5};

    // `source` is borrowed, and only for this call: it is opened a second time where that goes, so
    // that reading without waiting changes nothing for others who have it. Throws SystemError.
    explicit InputRelay(int source);

    // Before run(): a pipe for the next local rank, whose reading end is returned. Throws
    // SystemError.
    base::UniqueFd add_worker();

    // Readable when run() has something to do; so is the time of wakes_at().
    int fd() const { return events_.fd(); }
    std::optional<Time> wakes_at() const;
    // Moves what can be moved, a bounded amount. Never waits.
    void run(Time now);
    // Lines for the user: who got no more, and why.
    std::string take_notice();

private:
    struct Sink {
        base::UniqueFd pipe;
        std::uint64_t taken = 0;  // bytes, of all that came
        bool waiting = false;     // for room in its pipe
        Time stuck_since{};       // while it waits
    };

    std::uint64_t end() const { return start_ + spool_.size(); }
    bool has_room() const { return spool_.size() < spool_bytes; }
    bool wanted() const;
    bool starving() const;
    Time cut_off_at(const Sink& sink) const;  // while somebody starves
    bool read_some();
    void deliver(std::size_t rank, Time now);
    void trim();
    void cut_off_stuck(Time now);
    void watch_source();

    base::UniqueFd source_;
    bool is_socket_ = false;
    bool always_ready_ = false;  // a file, which no poller takes
    bool watched_ = false;
    bool ended_ = false;
    Poller events_;
    std::vector<Sink> sinks_;  // by local rank
    std::optional<Time> starving_since_;
    std::string spool_;
    std::uint64_t start_ = 0;  // of the spool, in bytes of all that came
    std::string notice_;
};

}  // namespace ddp::launcher
