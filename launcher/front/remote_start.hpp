// Starts a job on other hosts and stays with it to the end: the starter. It has no agent and no
// workers; each host's ddp-launch has, and the coordinator of the job is that of the first. It
// hands out the parts, shows what comes back, passes signals on and returns the job's exit code.
// Invariant: when it ends, however that happens, the hosts' launchers learn of it by the end of
// their input, and kill their workers.
#pragma once

#include "contract/host_link.hpp"
#include "launcher/front/remote_job.hpp"

namespace ddp::launcher {

// The exit code of the job: that of all hosts, or of the first host that has one other than 0.
// Hosts on which nothing could be started are named with what --rsh said last, the others are
// stopped, and it is 1, or what ddp-launch itself returned on all of these. Throws UsageError for
// more hosts than there are descriptors for, SystemError. Call it single-threaded. `host`: a
// program that has launched this job; the job ends with it.
int start_on_hosts(const RemoteJob& job, const contract::HostLink& host);

}  // namespace ddp::launcher
