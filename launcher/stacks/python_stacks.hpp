// What a Python program's threads do in Python's own terms: by py-spy, where it is installed, which
// reads the interpreter's memory while the program stands still for some milliseconds.
#pragma once

#include "launcher/stacks/rank_stacks.hpp"

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp::launcher {

bool is_python(pid_t pid);

// As `py-spy dump --json` says, the first thread first. Blocks for 300 ms at most; what is killed
// then leaves nothing stopped. `problem` (out): why there is nothing.
std::vector<ThreadStack> python_stacks_of(pid_t pid, std::string& problem);
// From its output; nothing of what is no such thing.
std::vector<ThreadStack> python_stacks_in(const std::string& dump);

}  // namespace ddp::launcher
