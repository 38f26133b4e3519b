// StackReader: reads the stacks of some ranks in a child, while this process goes on. The ranks
// stand still for StackCopy::most_time each, mostly for a millisecond, and for py-spy a few more.
// Invariant: of a reading that was begun nothing is left after `most_time`.
#pragma once

#include "base/sanitizers.hpp"
#include "base/unique_fd.hpp"
#include "launcher/stacks/rank_stacks.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class StackReader {
public:
    using Time = std::chrono::steady_clock::time_point;
    using Milliseconds = std::chrono::milliseconds;
    // All of a few ranks; of programs that are ten times as large and slow, more.
#ifdef DDP_SANITIZES_ADDRESSES
    static constexpr Milliseconds most_time{10'000};
#else
    static constexpr Milliseconds most_time{2000};
#endif

    struct Wanted {
        int rank = 0;
        pid_t pid = 0;
    };

    StackReader() = default;
    ~StackReader() { end(); }
    StackReader(const StackReader&) = delete;
    StackReader& operator=(const StackReader&) = delete;

    // Or nobody, unless one has a library loaded whose collectives are known (libtorch, libgloo,
    // libmpi, libnccl).
    enum class Whom : bool { all, who_may_communicate };
    // Does nothing while it reads. In a single-threaded process whose standard input is /dev/null.
    // Throws SystemError where there is no child.
    void begin(Time now, std::vector<Wanted> wanted, Milliseconds most = most_time,
               Whom whom = Whom::all);
    bool is_reading() const { return helper_ != 0; }
    // When to look again; nothing: it does not read.
    std::optional<Time> next() const { return next_; }
    // Of all that were wanted, once: when all have been read, or the time is over. Does not block.
    std::optional<std::vector<RankStacks>> take(Time now);

    // 0: it does not read. Whoever waits for any child may wait for it.
    pid_t helper() const { return helper_; }
    int fd() const { return socket_.get(); }  // readable when take() has something to do
    void end();                               // what it has not read is never read

private:
    bool receive();

    std::vector<Wanted> wanted_;
    pid_t helper_ = 0;
    base::UniqueFd pidfd_;
    base::UniqueFd socket_;
    std::string received_;  // a line of JSON for each rank
    Time until_{};
    std::optional<Time> next_;
};

}  // namespace ddp::launcher
