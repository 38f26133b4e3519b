// What may hang or crash, such as a driver's library or another program, runs in a child that is
// given a time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::doctor {

// What `work` returns, run in a fork of this process; nothing when it throws, crashes or is not
// done in time (it is killed then). Blocks. In a single-threaded process.
std::optional<std::string> in_child(std::chrono::milliseconds limit,
                                    const std::function<std::string()>& work);

struct ProgramEnd {
    std::optional<int> exit_code;  // nothing: killed by a signal, or for it took too long
    std::string output;            // stdout and stderr
};
// argv[0] is looked up in PATH. Exit code 127: it cannot be run. Its stdin is /dev/null. What it
// has started itself and left is left. Throws SystemError where no child can be made.
ProgramEnd run_program(const std::vector<std::string>& argv, std::chrono::milliseconds limit);

}  // namespace ddp::doctor
