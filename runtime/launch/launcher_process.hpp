// The ddp-launch that a call of launch() starts, from its start to its result.
#pragma once

#include "contract/host_link.hpp"

#include <ddp/launch.hpp>

#include <string>
#include <vector>

namespace ddp::launching {

struct LauncherCommand {
    std::string path;                      // of ddp-launch
    std::vector<std::string> arguments;    // without its name
    std::vector<std::string> environment;  // "NAME=value", over this process's
    contract::FailurePolicy failure_policy = contract::FailurePolicy::stop_job;
};

struct LauncherResult {
    LaunchResult job;
    std::vector<contract::RankEnd> ends;  // of the workers; with FailurePolicy::tell_host
};

// Blocks until it has ended. Throws SystemError when it cannot be started, UsageError when it
// refuses its arguments.
LauncherResult run_launcher(const LauncherCommand& command, const LaunchOptions& options);

}  // namespace ddp::launching
