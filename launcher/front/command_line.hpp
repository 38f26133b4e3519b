// From the words of the command line to an exit code: help, version, the one-line answer to a wrong
// command line, or the job itself. Everything that can be refused is refused here, before the first
// fork, with exactly one line on stderr.
#pragma once

#include <span>
#include <string>

namespace ddp::launcher {

// `called_as`: argv[0]; `arguments`: the rest. Returns what main returns: the root cause's exit
// code, 2 for a wrong command line, 126 or 127 for a program that cannot be run. It returns twice,
// like fork(): in the front, and with the agent's exit code in the agent.
int run_command_line(const std::string& called_as, std::span<char* const> arguments);

}  // namespace ddp::launcher
