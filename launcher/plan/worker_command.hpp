// What each worker executes: the program itself, or Python with a script or module; --wrap's
// commands around it; arguments in which ${local_rank} stands for the worker's number. Worked out
// for all workers before the first is started, so that a missing program is one line and no worker.
#pragma once

#include "launcher/options/options.hpp"
#include "launcher/plan/program_path.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

struct WorkerCommand {
    std::string path;                    // to be executed
    std::vector<std::string> arguments;  // from argv[0] on
};

// Where programs and scripts are looked for; a test puts its own here.
struct ProgramSearch {
    std::function<Program(const std::string& name)> program;
    std::function<Program(const std::string& name)> script;  // readable is enough
    std::string python;                                      // $PYTHON_EXEC, else python3
};

struct WorkerCommands {
    std::vector<WorkerCommand> of_rank;  // by local rank
    Program missing;                     // its problem is not empty when something cannot be run
};

WorkerCommands worker_commands(const Options& options, int workers, const ProgramSearch& search);

// As Python's string.Template.safe_substitute does with local_rank alone: ${local_rank} and
// $local_rank become the number, $$ becomes $, and all else stays.
std::string substitute_local_rank(std::string_view text, int local_rank);

}  // namespace ddp::launcher
