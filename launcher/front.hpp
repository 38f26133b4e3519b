// The front: the half of the launcher that the user started. It keeps the terminal, the signals and
// the exit code; the agent, which it forks, keeps the workers. When the agent is killed, the front
// inherits all that the agent had started, kills it and says so.
#pragma once

#include "launcher/options.hpp"

#include <string>

namespace ddp::launcher {

// Runs the job; returns the exit code for main, in the front and in the forked agent alike.
// `program` is the path of options.command[0]. Throws UsageError (port in use), SystemError, both
// before anything is forked. Call it single-threaded.
int run_front(const Options& options, const std::string& program);

}  // namespace ddp::launcher
