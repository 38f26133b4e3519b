// The other ranks' processes, for a rank that has failed and stays alive until they have heard.
#pragma once

#include "backends/gloo/make_gloo.hpp"

#include <ddp/process_group.hpp>

#include <gtest/gtest.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::testing {

// Those that this build has and that need no GPU.
inline std::vector<Backend> backends_for_the_cpu() {
    std::vector<Backend> backends{Backend::shm};
    if (gloo::refusal_of_build().empty()) backends.push_back(Backend::gloo);
    return backends;
}

class OtherProcesses {
public:
    // Collective.
    explicit OtherProcesses(ProcessGroup& group) : pids_(static_cast<std::size_t>(group.size())) {
        std::vector<std::int64_t> mine{::getpid()};
        group.all_gather(mine, pids_).wait();
    }
    // Ranks must end long before: a rank that goes first is what the others must not need.
    void wait_for_their_end() const {
        for (const std::int64_t pid : pids_) {
            if (pid == ::getpid()) continue;
            const long fd = ::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0);
            if (fd < 0) continue;  // it has ended
            pollfd end{static_cast<int>(fd), POLLIN, 0};
            EXPECT_EQ(::poll(&end, 1, 40'000), 1) << "process " << pid << " has not heard";
            ::close(static_cast<int>(fd));
        }
    }

private:
    std::vector<std::int64_t> pids_;
};

}  // namespace ddp::testing
