// The text of the status line, from numbers to words. Pure.
#pragma once

#include "launcher/channel/channel.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp::launcher {

struct Progress {
    std::int64_t step = 0;
    double steps_per_second = 0;
};

struct JobStatus {
    int hosts = 1;
    int workers = 0;
    int running = 0;
    int restarts = 0;
    std::chrono::seconds elapsed{0};
    std::optional<Progress> progress =
        std::nullopt;  // of the slowest rank, when workers publish it
};

// What the agent has told.
JobStatus job_status(const StatusMessage& told, std::chrono::seconds elapsed);

// "8/8 ranks up, 1 restart, 1:02:03, step 1200, 34.5 steps/s"; of several hosts with "3 hosts, "
// before it
std::string status_text(const JobStatus& status);

}  // namespace ddp::launcher
