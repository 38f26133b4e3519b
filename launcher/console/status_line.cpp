#include "launcher/console/status_line.hpp"

#include <array>
#include <cstdio>

namespace ddp::launcher {
namespace {

// "0:07", "12:34", "1:02:03".
std::string time_text(std::chrono::seconds elapsed) {
    const long long total = elapsed.count();
    std::array<char, 48> text;
    if (total < 3600) {
        std::snprintf(text.data(), text.size(), "%lld:%02lld", total / 60, total % 60);
    } else {
        std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", total / 3600, total / 60 % 60,
                      total % 60);
    }
    return text.data();
}

std::string rate_text(double steps_per_second) {
    std::array<char, 48> text;
    const int decimals = steps_per_second < 10 ? 2 : 1;
    std::snprintf(text.data(), text.size(), "%.*f steps/s", decimals, steps_per_second);
    return text.data();
}

}  // namespace

JobStatus job_status(const StatusMessage& told, std::chrono::seconds elapsed) {
    JobStatus status{.hosts = told.hosts,
                     .workers = told.workers,
                     .running = told.running,
                     .restarts = told.restarts,
                     .elapsed = elapsed};
    if (told.step != 0 || told.steps_per_second != 0) {
        status.progress = {told.step, told.steps_per_second};
    }
    return status;
}

std::string status_text(const JobStatus& status) {
    std::string text = status.hosts > 1 ? std::to_string(status.hosts) + " hosts, " : "";
    text += std::to_string(status.running) + "/" + std::to_string(status.workers) + " ranks up";
    if (status.restarts > 0) {
        text += ", " + std::to_string(status.restarts) +
                (status.restarts == 1 ? " restart" : " restarts");
    }
    text += ", " + time_text(status.elapsed);
    if (status.progress) {
        text += ", step " + std::to_string(status.progress->step);
        if (status.progress->steps_per_second > 0) {
            text += ", " + rate_text(status.progress->steps_per_second);
        }
    }
    return text;
}

}  // namespace ddp::launcher
