// What is settled between reading the command line and starting anything: how many workers, what
// each executes, which GPU it gets, and what the user is told about choices made for them.
#pragma once

#include "launcher/options/options.hpp"
#include "launcher/plan/visible_gpus.hpp"
#include "launcher/plan/worker_command.hpp"
#include "launcher/plan/worker_variables.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

struct JobPlan {
    std::vector<WorkerCommand> commands;  // by local rank; empty: this host only serves others
    JobVariables variables;               // of all workers, but for what the agent alone knows
    std::vector<std::string> gpus;        // visible ones, where they were asked for
    std::vector<std::string> notices;     // lines for stderr
    Program missing;                      // its problem is not empty when something cannot be run

    int workers() const { return static_cast<int>(commands.size()); }
};

// What a plan asks beside the options and variables; a test has its own.
struct Host {
    std::string called_as = {};  // argv[0] of ddp-launch
    GpuPaths gpus = {};
};

// Throws UsageError.
JobPlan plan_job(const Options& options, const EnvLookup& environment, const Host& host = {});

// A word as a shell takes it.
std::string in_shell_quotes(const std::string& word);

// What --dry-run prints: the variables that differ from the launcher's own, and the command, of
// each worker. What only a start decides stands in angle brackets. `hosts`: of a job of several,
// what it is, in a line; nothing: a job of one.
std::string describe_plan(const Options& options, const JobPlan& plan,
                          const std::optional<std::string>& hosts = std::nullopt);

}  // namespace ddp::launcher
