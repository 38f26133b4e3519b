// The agent: the half of the launcher that owns the workers. It starts them, relays what they
// write, serves their store, stops all when one fails, starts all anew while restarts are left, and
// ends only when no descendant is left that can be killed. It speaks to the front alone: it never
// writes to the terminal and never calls exit(). When the front is gone (end of file on the
// channel), it kills everything at once.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/agent/agent_job.hpp"
#include "launcher/agent/containment.hpp"

namespace ddp::launcher {

// Runs the job; returns the exit code that it also reported. In a process of its own,
// single-threaded, after become_agent().
int run_agent(AgentJob job, const ForkedAgent& me, base::UniqueFd channel);

}  // namespace ddp::launcher
