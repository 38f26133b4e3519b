// What the front hands to the agent that it forks.
#pragma once

#include "contract/host_link.hpp"
#include "launcher/agent/attempt/progress_watch.hpp"
#include "launcher/agent/rendezvous.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/inspect/run_view.hpp"
#include "launcher/metrics/metrics_listener.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/worker/handed_descriptors.hpp"
#include "launcher/worker/worker.hpp"

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct AgentJob {
    Options options;
    JobPlan plan;
    Rendezvous rendezvous;
    std::optional<HostsJob> hosts = {};  // a job of several
    std::string error_folder;
    std::optional<TerminalForWorker> terminal = {};  // of each, where it does not say otherwise
    Watching progress = Watching::off;               // for a status line
    bool keeps_timelines = false;  // each rank in a ring; of several hosts, as the coordinator says
    // Of the report: whoever makes this object has the stderr on which it will be read.
    Lines lines = ::isatty(STDERR_FILENO) != 0 ? Lines::wrapped : Lines::whole;
    contract::FailurePolicy failure_policy = contract::FailurePolicy::stop_job;
    HandedDescriptors handed = {};
    std::optional<MetricsListener> metrics = {};
    pid_t launcher_pid = ::getpid();  // the front's: whoever makes this object
};

// What ddp-launch inspect says of it.
inline RunFacts facts_of(const AgentJob& job) {
    return {.run_id = job.options.run_id,
            .command = job.options.program.command,
            .launcher_pid = job.launcher_pid,
            .is_kept = job.options.logs.history,
            .is_judged = job.options.stop.on_hang != OnHang::ignore,
            .is_contained = job.options.stop.contain == Containment::pidns};
}

}  // namespace ddp::launcher
