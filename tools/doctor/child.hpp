// What may hang or crash, such as a driver's library or another program, runs in a child that is
// given a time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::doctor {

// What `work` returns, run in a fork of this process, whose stdout and stderr are /dev/null; nothing
// when it throws, crashes or is not done in time. Blocks. In a single-threaded process.
std::optional<std::string> in_child(std::chrono::milliseconds limit,
                                    const std::function<std::string()>& work);

// One of three: an exit code, a signal that ended it, or neither, for it took too long and was
// killed.
struct ProgramEnd {
    std::optional<int> exit_code;
    std::optional<int> signal;
    std::string output;  // stdout and stderr
};
// argv[0] is looked up in PATH. Exit code 127: it cannot be run. Its stdin is /dev/null, and it gets
// no variable that begins with one of `hidden`. Who does not end in spite of SIGKILL, as a driver
// may keep it, is left after a second. Throws SystemError where no child can be made.
ProgramEnd run_program(const std::vector<std::string>& argv, std::chrono::milliseconds limit,
                       const std::vector<std::string>& hidden = {});

// "exit code 3", "signal 9", "not done in 20 s".
std::string describe(const ProgramEnd& end, std::chrono::seconds limit);

}  // namespace ddp::doctor
