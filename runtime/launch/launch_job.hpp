// What all that launches has in common: from options to a command line of ddp-launch, and for a
// function the way of this program's workers to it.
#pragma once

#include "launch/launcher_process.hpp"
#include "launch/worker_call.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launching {

// Throws UsageError.
void check(const LaunchOptions& options);

// Workers that run a command. `environment` stands before what the options add.
LauncherResult run_command(
    const LaunchOptions& options, const std::vector<std::string>& command,
    std::vector<std::string> environment = {},
    contract::FailurePolicy failure_policy = contract::FailurePolicy::stop_job);

// The words that this program was given, without its name.
std::vector<std::string> own_arguments();

// A function, and how the workers come to it.
struct OwnCall {
    CallName name;
    std::function<void()> body;
    std::optional<std::vector<std::string>> arguments = {};  // in place of this program's own
    contract::FailurePolicy failure_policy = contract::FailurePolicy::stop_job;
};

// Workers that run this program anew. In a worker of this call it runs the body and exits; in one
// of another call it returns nothing.
std::optional<LauncherResult> run_body(const LaunchOptions& options, const OwnCall& call);

}  // namespace ddp::launching
