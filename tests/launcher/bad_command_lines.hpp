// Command lines that are refused, as a table: a row each, with what the one line of the answer must
// hold. Read by a test of the parser and by one of the real ddp-launch.
#pragma once

#include <string>
#include <vector>

namespace ddp::launcher::testing {

struct BadCommandLine {
    std::vector<std::string> words;
    std::vector<std::string> message;  // all of them are in the one line: option, value, allowed
};

const std::vector<BadCommandLine>& bad_command_lines();

}  // namespace ddp::launcher::testing
