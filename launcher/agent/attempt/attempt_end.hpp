// What is known once nothing of an attempt lives, for whoever judges it: this host's agent of a job
// of one host, else the coordinator.
#pragma once

#include "launcher/inspect/run_view.hpp"
#include "launcher/report/outcome.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <string>
#include <vector>

namespace ddp::launcher {

struct AttemptEnd {
    HostWorkers workers;
    JobEnd job;
    std::string survivors = {};  // "could not be killed: ..."; empty: nobody lives
    Sighting seen = {};          // of a part of a job: the ranks' last records

    Outcome outcome() const;
    // When it could not start or go on: the same, with the reason.
    Outcome outcome(int exit_code, const std::string& why) const;
    // When the user stopped the job in the pause after it.
    Outcome outcome_when_stopped(int signal) const;

    // The same for somebody else to judge: how each worker ended, and when.
    struct TimedEnd {
        WorkerEnd end;
        Worker::Clock::time_point at;
    };
    std::vector<TimedEnd> ends() const;

private:
    Outcome with_survivors(Outcome outcome) const;
};

// For ddp-launch inspect: an attempt that has come so far.
RunView view_of(const AttemptEnd& so_far, const WatchedWorkers& workers);

}  // namespace ddp::launcher
