// A command line of the launcher, whose own words end where the program's begin.
// Invariant: what belongs to the program is not looked into.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// The two parts of a command line. The launcher's options come with their names in dashes and as
// "--name=value", ready to be parsed; the command is copied word for word.
struct SplitArguments {
    std::vector<std::string> options;
    std::vector<std::string> command;  // as given; empty: none is needed
};
SplitArguments split_arguments(std::span<char* const> arguments);

}  // namespace ddp::launcher
