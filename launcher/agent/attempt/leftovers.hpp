// What the workers of an attempt left running when they ended: it has 250 ms to leave, then gets
// SIGTERM, and when the grace is over process_sweep kills it, no later than the stop sequence's own
// SIGKILL.
#pragma once

#include "launcher/agent/attempt/stop_sequence.hpp"
#include "launcher/process/process_sweep.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace ddp::launcher {

class Leftovers {
public:
    using Time = StopSequence::Time;

    // When to look again; nothing: when all are gone, or their time is over.
    std::optional<Time> look(Time now, const StopSequence& stop, std::chrono::milliseconds grace,
                             const ExcludedProcesses& excluded);
    // Once it has begun, their time is over then at the latest.
    void shorten(Time end);
    // Whom the last look has asked to leave, for the user; once, empty when nobody.
    std::string take_asked();

private:
    std::optional<Time> ask_at_;
    std::optional<Time> kill_at_;
    bool were_asked_ = false;
    std::string asked_;
};

}  // namespace ddp::launcher
