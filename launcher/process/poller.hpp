// epoll with tags instead of descriptors. Level-triggered; events come in the order in which the
// descriptors became ready, which is what decides whose fault a failure is.
#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp::launcher {

class Poller {
public:
    using Clock = std::chrono::steady_clock;
    using Tag = std::uint64_t;

    Poller();  // throws SystemError
    int fd() const { return fd_.get(); }

    // Events are EPOLLIN and EPOLLOUT; none of them pauses the descriptor (but not its hang-up).
    void add(int fd, std::uint32_t events, Tag tag);
    void change(int fd, std::uint32_t events, Tag tag);
    void remove(int fd);

    // Tags of what is ready, waiting for the first one until `wake_at` (at most an hour).
    std::vector<Tag> wait(std::optional<Clock::time_point> wake_at);

private:
    base::UniqueFd fd_;
};

}  // namespace ddp::launcher
