// What the workers of an attempt left running when they ended: it is given time to leave, then
// asked to (SIGTERM), and after the rest of the grace it is for the sweep. Its SIGKILL comes no
// later than that of the stop sequence.
#pragma once

#include "launcher/agent/stop_sequence.hpp"
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
