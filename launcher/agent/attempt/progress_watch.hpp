// The agent's side of the status line: reads what workers publish in the control pages and, while
// it changes, makes a StatusMessage for the front, at most four times a second. Switched off, it
// never wakes the agent.
#pragma once

#include "contract/control_page.hpp"
#include "launcher/channel/channel.hpp"

#include <chrono>
#include <optional>

namespace ddp::launcher {

enum class Watching { off, on };

class ProgressWatch {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds interval{250};

    explicit ProgressWatch(Watching watching) : watching_(watching) {}

    void set_restarts(int restarts) { restarts_ = restarts; }
    // When to look next; nothing: never.
    std::optional<Clock::time_point> next() const;
    // What is new, if it is time to look.
    std::optional<StatusMessage> look(Clock::time_point now, const contract::ControlRegion& pages,
                                      int running);

private:
    Watching watching_;
    int restarts_ = 0;
    Clock::time_point next_{};
    StatusMessage last_;
};

// The smallest step and rate among the ranks that publish; zeros when none does.
StatusMessage slowest(const contract::ControlRegion& pages, int restarts);

}  // namespace ddp::launcher
