// The front: the half of the launcher that the user started. It keeps the terminal, the signals and
// the exit code; the agent, which it forks, keeps the workers. When the agent is killed, the front
// inherits all that the agent had started, kills it and says so.
#pragma once

#include "contract/host_link.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/job_plan.hpp"

#include <optional>

namespace ddp::launcher {

// Runs the job; returns the exit code for main, in the front and in the forked agent alike.
// Throws UsageError (port in use), SystemError, both
// before anything is forked. Call it single-threaded. A host, a program that has launched this job,
// gets the result over its link; the job is killed when it ends.
// `hosts`: of a job of several hosts.
int run_front(const Options& options, const JobPlan& plan, std::optional<HostsJob> hosts,
              contract::HostLink& host);

}  // namespace ddp::launcher
