// Finds the program that the workers run, before anything is forked: with a slash in its name as it
// is, otherwise along PATH. What cannot be run is a foreseen outcome with the exit code of a shell
// (127 not found, 126 not executable) and one line that says what to do.
#pragma once

#include <string>

namespace ddp::launcher {

struct Program {
    std::string path;     // to be executed
    std::string problem;  // empty when it can be
    int exit_code = 0;    // for the problem
};

Program find_program(const std::string& name, const std::string& search_path);

// A script for an interpreter: as it is named, and it need not be executable.
Program find_script(const std::string& name);

}  // namespace ddp::launcher
