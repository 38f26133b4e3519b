// Starts programs, reads what they print and waits for them; for tests that run the examples as a
// user does. Invariant: nothing started here outlives the call.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ddp::tests {

struct ProgramResult {
    int exit_code = -1;  // 128 + the signal when one ended it
    std::string out;
    std::string err;
};

using Command = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

// Each command is started with this process's environment, without a job's variables, plus its own.
struct Program {
    Command command;
    Environment environment = {};
};

// Runs them side by side. One that runs for longer than a minute is killed and fails the test.
std::vector<ProgramResult> run_programs(const std::vector<Program>& programs);
ProgramResult run_program(const Command& command);

// The same program `ranks` times: by ddp-launch where it is built, else by hand. One result for
// all: the exit code is the first that is not 0, what they print is one after the other.
ProgramResult run_ranks_of(int ranks, const Command& command);
// The same without ddp-launch: the variables of a job are set here, and rank 0 serves the store.
ProgramResult run_ranks_by_hand(int ranks, const Command& command);

std::string example(const std::string& name);  // its path
std::vector<std::string> lines_of(const std::string& text);

}  // namespace ddp::tests
